//! Everything that can be asked for with every kind of key.

use std::collections::{BTreeMap, BTreeSet};

use raglan_core::audit::{AuditEvent, Decision};
use raglan_core::key::PlainKey;
use raglan_core::tool::Tool;
use serde_json::{Value, json};

use super::table::{
    ABSENT, EVERYTHING, Expected, KINDS, Kind, Presents, Refused, Row, Shows, discover, initialize,
    rows, seen_in,
};
use super::without_echo;
use crate::support::{Answer, Request, World, rpc};

/// The methods of every revision of MCP that a client can send as a request.
#[rustfmt::skip]
const METHODS: [&str; 25] = [
    "completion/complete", "elicitation/create", "initialize", "logging/setLevel", "ping",
    "prompts/get", "prompts/list", "resources/directory/read", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "roots/list",
    "sampling/createMessage", "server/discover", "skills/get", "skills/list", "tasks/cancel",
    "tasks/get", "tasks/list", "tasks/result", "tasks/update", "tools/call", "tools/list",
];
const METHOD_NOT_FOUND: i64 = -32601;

/// What has to happen to one request of the table.
#[derive(Debug, Clone, PartialEq)]
enum Verdict {
    Unauthenticated,
    Refused(Refused),
    /// Shows these knowledge bases, or at least none but these.
    Shows {
        knowledge_bases: BTreeSet<&'static str>,
        all: bool,
    },
}

fn verdict(row: &Row, expected: Expected, kb_id: &'static str) -> Verdict {
    let nothing = || Verdict::Shows {
        knowledge_bases: BTreeSet::new(),
        all: true,
    };
    match expected {
        Expected::Unauthenticated => Verdict::Unauthenticated,
        Expected::ToolRefused if row.needs.is_empty() => nothing(),
        Expected::ToolRefused if row.without_tool == Refused::Never => nothing(),
        Expected::ToolRefused => Verdict::Refused(row.without_tool),
        Expected::Sees(_) if row.shows == Shows::Nothing => nothing(),
        Expected::Sees(visible) if row.names_one && visible.contains(&kb_id) => Verdict::Shows {
            knowledge_bases: [kb_id].into(),
            all: row.shows == Shows::TheNamed,
        },
        Expected::Sees(visible) if row.names_one || visible.is_empty() => {
            Verdict::Refused(row.out_of_scope)
        }
        Expected::Sees(visible) => Verdict::Shows {
            knowledge_bases: visible.iter().copied().collect(),
            all: row.shows == Shows::AllVisible,
        },
    }
}

/// What the server itself says that it offers, in the words of the table.
async fn offered(world: &World, key: &PlainKey) -> BTreeSet<String> {
    let ask = async |request: Request| request.key(key).send(world).await.json()["result"].clone();
    let names = |list: &Value, name: &str| -> Vec<String> {
        let items = list.as_array().cloned().unwrap_or_default();
        items
            .iter()
            .map(|item| item[name].as_str().unwrap().to_owned())
            .collect()
    };
    let mut offered = BTreeSet::new();
    for tool in names(&ask(rpc("tools/list", json!({}))).await["tools"], "name") {
        offered.insert(format!("tools/call {tool}"));
    }
    let prompts = ask(rpc("prompts/list", json!({}))).await["prompts"].clone();
    for prompt in prompts.as_array().unwrap() {
        let name = prompt["name"].as_str().unwrap();
        offered.insert(format!("prompts/get {name}"));
        for argument in names(&prompt["arguments"], "name") {
            offered.insert(format!("completion/complete {name} {argument}"));
        }
    }
    let templates = ask(rpc("resources/templates/list", json!({}))).await;
    for template in names(&templates["resourceTemplates"], "uriTemplate") {
        offered.insert(format!("resources/read {template}"));
        for part in template.split('{').skip(1) {
            let variable = part.split('}').next().unwrap();
            offered.insert(format!("completion/complete {template} {variable}"));
        }
    }
    for method in METHODS {
        let request = match method {
            "initialize" => initialize(),
            other => rpc(other, json!({})),
        };
        let answer = request.key(key).send(world).await;
        let by_what_it_names = [
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
        ];
        if answer.code() != Some(METHOD_NOT_FOUND) && !by_what_it_names.contains(&method) {
            offered.insert(method.to_owned());
        }
    }
    let families = [
        ask(initialize()).await["capabilities"].clone(),
        ask(discover()).await["capabilities"].clone(),
    ];
    for family in families {
        let family: Vec<_> = family.as_object().unwrap().keys().cloned().collect();
        assert_eq!(family, ["completions", "prompts", "resources", "tools"]);
    }
    offered
}

/// One request of the walk, found again in the audit trail by its user agent.
struct Sent {
    row: usize,
    verdict: Verdict,
    user_agent: String,
}

#[tokio::test]
async fn every_request_decides_for_every_kind_of_key_as_the_table_says() {
    let world = World::start().await;
    let good = world.full_key().await;
    let rows = rows();
    let covered: BTreeSet<_> = rows.iter().map(|row| row.surface.to_owned()).collect();
    assert_eq!(
        covered,
        offered(&world, &good).await,
        "the table has a row for everything"
    );

    let nobody = rpc("tools/list", json!({})).send(&world).await;
    assert_eq!(nobody.status, 401);
    let mut sent = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let mut refusals = BTreeMap::<String, BTreeSet<String>>::new();
        for kind in KINDS {
            walk_cell(
                &world,
                (&good, &nobody),
                (number, row),
                kind,
                &mut sent,
                &mut refusals,
            )
            .await;
        }
        for (refused, answers) in refusals {
            assert_eq!(answers.len(), 1, "{} {refused}: {answers:#?}", row.surface);
        }
    }
    check_trail(&world, &rows, &sent).await;
    println!(
        "permission table: {} rows x {} kinds of key = {} cells, {} requests",
        rows.len(),
        KINDS.len(),
        rows.len() * KINDS.len(),
        sent.len()
    );
}

/// Sends the requests of one cell: about every knowledge base and one that is not there, where the row
/// names one. `nobody` is the answer to a request without a key.
async fn walk_cell(
    world: &World,
    (good, nobody): (&PlainKey, &Answer),
    (number, row): (usize, &Row),
    (kind, presents, expected): Kind,
    sent: &mut Vec<Sent>,
    refusals: &mut BTreeMap<String, BTreeSet<String>>,
) {
    let mut tools = BTreeSet::new();
    let header = match presents {
        Presents::Nothing => None,
        Presents::Text(make) => Some(make(good.reveal())),
        Presents::Stored(change) => {
            let key_id = format!("{number}: {kind}");
            let key = world
                .key(&key_id, |record| {
                    change(record, row.needs);
                    tools.clone_from(&record.tools);
                })
                .await;
            Some(key.reveal().to_owned())
        }
    };
    let named: Vec<&str> = EVERYTHING.iter().copied().chain([ABSENT]).collect();
    for kb_id in if row.names_one { named } else { vec![ABSENT] } {
        let user_agent = format!("{} / {} / {kind} / {kb_id}", row.surface, row.form);
        let mut request = (row.request)(kb_id).header("user-agent", &user_agent);
        if let Some(key) = &header {
            request = request.header("authorization", &format!("Bearer {key}"));
        }
        let asked_before = world.engine.calls();
        let answer = request.send(world).await;
        let verdict = verdict(row, expected, kb_id);
        let place = format!("{user_agent}: {answer:?}");
        match &verdict {
            Verdict::Unauthenticated => {
                assert_eq!(&answer, nobody, "{place}");
            }
            Verdict::Refused(Refused::Error(code, message)) => {
                let body = answer.json();
                assert_eq!(answer.status, 200, "{place}");
                assert_eq!(body["error"]["code"], *code, "{place}");
                assert_eq!(body["error"]["message"], *message, "{place}");
                let answers = refusals.entry(format!("{verdict:?}")).or_default();
                answers.insert(without_echo(&answer));
            }
            Verdict::Refused(Refused::EmptyList) => {
                assert_eq!((answer.status, answer.code()), (200, None), "{place}");
                assert_eq!(seen_in(&answer.body), BTreeSet::new(), "{place}");
            }
            Verdict::Refused(Refused::Never) => panic!("the table contradicts itself: {place}"),
            Verdict::Shows {
                knowledge_bases,
                all,
            } => {
                assert_eq!((answer.status, answer.code()), (200, None), "{place}");
                assert_ne!(answer.json()["result"]["isError"], true, "{place}");
                let seen = seen_in(&answer.body);
                assert!(seen.is_subset(knowledge_bases), "{place}");
                assert!(!all || seen == *knowledge_bases, "{place}");
            }
        }
        if !matches!(verdict, Verdict::Shows { .. }) {
            assert_eq!(
                world.engine.calls(),
                asked_before,
                "no engine is asked: {place}"
            );
        }
        if row.surface == "tools/list" && verdict != Verdict::Unauthenticated {
            let shown = answer.json()["result"]["tools"].as_array().cloned();
            let shown: Option<BTreeSet<Tool>> = shown
                .unwrap_or_default()
                .iter()
                .map(|tool| Tool::from_name(tool["name"].as_str()?))
                .collect();
            assert_eq!(shown.as_ref(), Some(&tools), "{place}");
        }
        sent.push(Sent {
            row: number,
            verdict,
            user_agent,
        });
    }
}

/// Every refusal and every access has one event, and the events of what is forbidden and of what is
/// absent differ in what the caller sent and in nothing else.
async fn check_trail(world: &World, rows: &[Row], sent: &[Sent]) {
    let mut events = BTreeMap::<String, Vec<AuditEvent>>::new();
    for event in world.audit_events().await {
        let user_agent = event.user_agent.clone().unwrap_or_default();
        events.entry(user_agent).or_default().push(event);
    }
    let mut refusals = BTreeMap::<String, BTreeSet<String>>::new();
    for one in sent {
        let row = &rows[one.row];
        let found = events.get(&one.user_agent).map_or(&[][..], Vec::as_slice);
        let decisions: Vec<_> = found.iter().map(|event| event.decision).collect();
        let expected = match &one.verdict {
            Verdict::Unauthenticated => vec![Decision::Unauthenticated],
            Verdict::Refused(Refused::Error(..)) => vec![Decision::Denied],
            _ if row.audited => vec![Decision::Allowed],
            _ => Vec::new(),
        };
        assert_eq!(decisions, expected, "{}", one.user_agent);
        if let Verdict::Refused(Refused::Error(..)) = one.verdict {
            let mut event = serde_json::to_value(&found[0]).unwrap();
            let fields = event.as_object_mut().unwrap();
            let of_the_caller = [
                "user_agent",
                "parameters",
                "params_bytes",
                "key_id",
                "owner",
            ];
            for name in ["event_id"].iter().chain(&of_the_caller) {
                fields.remove(*name);
            }
            let refusal = format!("{} {} {:?}", row.surface, row.form, one.verdict);
            refusals
                .entry(refusal)
                .or_default()
                .insert(event.to_string());
        }
    }
    assert!(!refusals.is_empty());
    for (refusal, events) in refusals {
        assert_eq!(events.len(), 1, "{refusal}: {events:#?}");
    }
}
