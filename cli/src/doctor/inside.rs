//! What only an operator sees: tables, queues, alarms, and how much of their quotas keys have used.

use std::collections::BTreeMap;

use aws_sdk_cloudwatch::types::StateValue;
use aws_sdk_dynamodb::types::TableStatus;
use aws_sdk_sqs::types::QueueAttributeName;
use raglan_aws::AwsClients;
use raglan_core::clock::Timestamp;
use raglan_core::life_cycle;
use raglan_core::tool::Tool;
use raglan_store::StoreError;
use raglan_store::usage::UsageStore;
use serde_json::Value;

use super::finding::Finding;
use crate::language::text;
use crate::target::Target;

/// More than this many waiting events are more than one batch of a busy minute.
const WAITING_MAX: u64 = 1_000;
/// From this part of a quota on somebody should know.
const QUOTA_WARNING_PERCENT: u64 = 80;
const ENDING_SOON_SECONDS: i64 = 7 * 86_400;
/// The quotas of keys without their own, where the deployment does not say others.
const DEFAULT_QUOTAS: [(Tool, u64); 2] = [(Tool::Ask, 500), (Tool::Retrieve, 5_000)];

/// Each table: is it there, and would it survive a mistake?
pub async fn tables(target: &Target) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, table) in target.tables() {
        let Some(table) = table else {
            findings.push(Finding::skipped(
                "table",
                text!("{name} is not named by this deployment", name),
                text!("Name the deployment with --stack."),
            ));
            continue;
        };
        findings.push(describe_table(target, name, table).await);
    }
    findings
}

async fn describe_table(target: &Target, name: &str, table: &str) -> Finding {
    let client = target.clients().dynamodb.sdk();
    let answer = client.describe_table().table_name(table).send().await;
    let described = match answer.map_err(|e| StoreError::of_call("DescribeTable", table, &e)) {
        Ok(output) => output.table,
        Err(error) => {
            return Finding::failed(
                "table",
                text!(
                    "the {name} table {table} cannot be looked at: {error}",
                    name,
                    table,
                    error
                ),
                text!(
                    "If it is gone, restore it from its point-in-time recovery (docs/operations.md); if you \
                 may not look, attach AdministratorPolicyArn to your role."
                ),
            );
        }
    };
    let described = described.as_ref();
    let status = described.and_then(|table| table.table_status());
    let protected = described.and_then(|table| table.deletion_protection_enabled);
    if status != Some(&TableStatus::Active) {
        let status = status.map_or("unknown", TableStatus::as_str);
        return Finding::failed(
            "table",
            text!("the {name} table is {status}", name, status),
            text!("Wait until it is ACTIVE; a table that is restored takes minutes to hours."),
        );
    }
    let must_be_protected = matches!(name, "keys" | "audit") && target.stack().is_some();
    if must_be_protected && protected != Some(true) {
        return Finding::warning(
            "table",
            text!("the {name} table can be deleted by mistake", name),
            text!("Deploy with DeletionProtection=true."),
        );
    }
    Finding::ok("table", text!("{name} is there", name))
}

/// The events on their way, and those that did not arrive.
pub async fn queues(target: &Target) -> Vec<Finding> {
    let Ok(url) = target.audit_queue_url() else {
        return vec![Finding::skipped(
            "audit_queue",
            text!("the queue is not named by this deployment"),
            text!("Name the deployment with --stack, or set AUDIT_QUEUE_URL."),
        )];
    };
    let clients = target.clients();
    let queue = match attributes(clients, url).await {
        Ok(queue) => queue,
        Err(error) => {
            return vec![Finding::failed(
                "audit_queue",
                text!("the audit queue cannot be looked at: {error}", error),
                text!(
                    "If it is gone, deploy the stack again; until then events are in the function's log \
                 (marker AUDIT_NOT_SENT)."
                ),
            )];
        }
    };
    let waiting = number(&queue, &QueueAttributeName::ApproximateNumberOfMessages);
    let mut findings = vec![if waiting > WAITING_MAX {
        Finding::warning(
            "audit_queue",
            text!("{waiting} events wait", waiting),
            text!("Look whether the audit function runs and whether its table is throttled."),
        )
    } else {
        Finding::ok("audit_queue", text!("{waiting} events wait", waiting))
    }];
    findings.push(match dead_letter_url(url, &queue) {
        None => Finding::failed(
            "dead_letters",
            text!("the audit queue has no dead-letter queue"),
            text!("Deploy the stack again: events that cannot be stored would be lost after two weeks."),
        ),
        Some(url) => dead_letters(clients, &url).await,
    });
    findings
}

async fn dead_letters(clients: &AwsClients, url: &str) -> Finding {
    let queue = match attributes(clients, url).await {
        Ok(queue) => queue,
        Err(error) => {
            return Finding::failed(
                "dead_letters",
                text!("the dead-letter queue cannot be looked at: {error}", error),
                text!("If it is gone, deploy the stack again."),
            );
        }
    };
    match number(&queue, &QueueAttributeName::ApproximateNumberOfMessages) {
        0 => Finding::ok("dead_letters", "none"),
        dead => Finding::failed(
            "dead_letters",
            text!("{dead} audit events could not be stored", dead),
            text!(
                "Find the cause in the audit function's log, mend it, and start a redrive of the queue \
             (docs/operations.md); they are deleted after two weeks."
            ),
        ),
    }
}

type Attributes = std::collections::HashMap<QueueAttributeName, String>;

async fn attributes(clients: &AwsClients, url: &str) -> Result<Attributes, StoreError> {
    let answer = clients
        .sqs
        .sdk()
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await;
    let output = answer.map_err(|error| StoreError::of_call("GetQueueAttributes", url, &error))?;
    Ok(output.attributes.unwrap_or_default())
}

fn number(attributes: &Attributes, name: &QueueAttributeName) -> u64 {
    let text = attributes.get(name).map(String::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The dead-letter queue's URL: that of the queue with the last part of the other's ARN.
fn dead_letter_url(url: &str, attributes: &Attributes) -> Option<String> {
    let policy = attributes.get(&QueueAttributeName::RedrivePolicy)?;
    let policy: Value = serde_json::from_str(policy).ok()?;
    let name = policy["deadLetterTargetArn"].as_str()?.rsplit(':').next()?;
    let (account, _) = url.rsplit_once('/')?;
    Some(format!("{account}/{name}"))
}

/// Which alarms ring, and whether anybody would hear them.
pub async fn alarms(target: &Target) -> Finding {
    let (Some(stack), Some(config)) = (target.stack(), target.aws_config()) else {
        return Finding::skipped(
            "alarms",
            text!("there are alarms only on AWS"),
            text!("Name a deployment with --stack."),
        );
    };
    let answer = aws_sdk_cloudwatch::Client::new(config)
        .describe_alarms()
        .alarm_name_prefix(format!("{stack}-"))
        .max_records(100)
        .send()
        .await;
    let alarms = match answer.map_err(|e| StoreError::of_call("DescribeAlarms", stack, &e)) {
        Ok(output) => output.metric_alarms.unwrap_or_default(),
        Err(error) => {
            return Finding::failed(
                "alarms",
                text!("the alarms cannot be looked at: {error}", error),
                text!("Attach AdministratorPolicyArn to your role."),
            );
        }
    };
    let ringing: Vec<&str> = alarms
        .iter()
        .filter(|alarm| alarm.state_value == Some(StateValue::Alarm))
        .filter_map(|alarm| alarm.alarm_name())
        .collect();
    if !ringing.is_empty() {
        return Finding::failed(
            "alarms",
            text!("ringing: {names}", names = ringing.join(", ")),
            text!("docs/operations.md has a section for each: what it means and what to do."),
        );
    }
    if alarms.is_empty() {
        return Finding::warning(
            "alarms",
            text!("there are none"),
            text!("Deploy the stack again: template.yaml makes them."),
        );
    }
    if alarms.iter().all(|alarm| alarm.alarm_actions().is_empty()) {
        return Finding::warning(
            "alarms",
            text!(
                "{count} alarms, none rings, and nobody would be told",
                count = alarms.len()
            ),
            text!("Deploy with AlarmEmail or AlarmTopicArn."),
        );
    }
    Finding::ok(
        "alarms",
        text!("{count} alarms, none rings", count = alarms.len()),
    )
}

/// Keys that are about to be refused: by their quotas, or because they end.
pub async fn keys(target: &Target, now: Timestamp) -> Vec<Finding> {
    let read = async {
        let keys = target.keys()?.list().await?;
        let usages = UsageStore::new(target.clients().dynamodb.clone(), target.state_table()?);
        let mut findings = Vec::new();
        let mut working = 0;
        for record in keys {
            if life_cycle::ending(&record, now).is_some() || !record.enabled {
                continue;
            }
            working += 1;
            let soon = now.plus_seconds(ENDING_SOON_SECONDS);
            if record.expires_at.is_some_and(|end| end < soon) {
                findings.push(Finding::warning(
                    "keys",
                    text!(
                        "{key_id} ({name}) ends within a week",
                        key_id = record.key_id,
                        name = record.name
                    ),
                    text!("Rotate it (`raglan key rotate`), or let it end."),
                ));
            }
            let Some(usage) = usages.of(&record.key_hash).await? else {
                continue;
            };
            if usage.day.day() != now.day() {
                continue;
            }
            for (tool, quota) in quotas(&record.daily_quotas) {
                let used = usage.by_tool.get(&tool).copied().unwrap_or(0);
                if quota > 0 && used * 100 >= quota * QUOTA_WARNING_PERCENT {
                    findings.push(Finding::warning(
                        "quotas",
                        text!("{key_id} has used {used} of {quota} calls of {tool} today", key_id = record.key_id, used, quota, tool),
                        text!("Ask its owner what it does, or raise it with `raglan key grant --quota`."),
                    ));
                }
            }
        }
        anyhow::Ok((working, findings))
    };
    match read.await {
        Ok((0, _)) => vec![Finding::warning(
            "keys",
            text!("no key works"),
            text!("Make one with `raglan key create`."),
        )],
        Ok((working, findings)) if findings.is_empty() => vec![Finding::ok(
            "keys",
            text!(
                "{working} keys work; none ends within a week or is near its quota",
                working
            ),
        )],
        Ok((_, findings)) => findings,
        Err(error) => vec![Finding::failed(
            "keys",
            text!(
                "the keys cannot be read: {error}",
                error = format_args!("{:#}", error)
            ),
            text!("See the table's finding."),
        )],
    }
}

/// A key's own quotas over the deployment's.
fn quotas(own: &BTreeMap<String, u64>) -> BTreeMap<Tool, u64> {
    let mut quotas = BTreeMap::from(DEFAULT_QUOTAS);
    let of_tool = |(name, quota): (&String, &u64)| Some((Tool::from_name(name)?, *quota));
    quotas.extend(own.iter().filter_map(of_tool));
    quotas
}
