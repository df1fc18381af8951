//! Tables and queues as `template.yaml` defines them, so that the local ones are the deployed ones.

use std::collections::BTreeMap;

use saphyr::{LoadableYamlNode, Yaml};

/// The deployment's template, as this program was built with it.
const EMBEDDED: &str = include_str!("../../../template.yaml");

const TABLE: &str = "AWS::DynamoDB::Table";
const QUEUE: &str = "AWS::SQS::Queue";
/// Properties that make no difference on this machine.
const TABLE_PROPERTIES_WITHOUT_LOCAL_MEANING: [&str; 5] = [
    "AttributeDefinitions",
    "BillingMode",
    "DeletionProtectionEnabled",
    "PointInTimeRecoverySpecification",
    "SSESpecification",
];
const QUEUE_PROPERTIES_WITHOUT_LOCAL_MEANING: [&str; 2] =
    ["SqsManagedSseEnabled", "KmsMasterKeyId"];

/// The tables and queues of a template, each in the template's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTemplate {
    /// The tables.
    pub tables: Vec<TableDefinition>,
    /// The queues.
    pub queues: Vec<QueueDefinition>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// The resource's name in the template; the table's name on this machine.
    pub name: String,
    /// The primary key.
    pub key: KeySchema,
    /// The global secondary indexes.
    pub indexes: Vec<IndexDefinition>,
    /// The attribute that holds the epoch second at which an item expires.
    pub ttl_attribute: Option<String>,
}

/// The key of a table or of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySchema {
    /// The partition key.
    pub partition: KeyAttribute,
    /// The sort key.
    pub sort: Option<KeyAttribute>,
}

/// An attribute that is part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAttribute {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: AttributeKind,
}

/// The types that a key can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeKind {
    /// `S`
    Text,
    /// `N`
    Number,
    /// `B`
    Binary,
}

/// A global secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: KeySchema,
    /// What it holds.
    pub projection: Projection,
}

/// The attributes that an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// All of them.
    All,
    /// Those of the table's and the index's key.
    KeysOnly,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDefinition {
    /// The resource's name in the template; the queue's name on this machine.
    pub name: String,
    /// How long a received message is hidden from others.
    pub visibility_timeout_seconds: Option<u32>,
    /// How long a message is kept.
    pub retention_seconds: Option<u32>,
    /// Where messages go that nobody could handle.
    pub redrive: Option<Redrive>,
}

/// Where a queue's messages go after a number of failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redrive {
    /// Name of the dead-letter queue in the template.
    pub dead_letter_queue: String,
    /// How often a message is received before it goes there.
    pub max_receive_count: u32,
}

/// The template cannot be used for the local system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is not YAML.
    #[error("the template is not valid YAML: {0}")]
    NotYaml(String),
    /// It has no resources.
    #[error("the template has no resources")]
    NoResources,
    /// One of its tables or queues is described in a way that the local system does not know.
    #[error("the template's resource {resource}: {problem}")]
    NotUnderstood {
        /// The resource's name in the template.
        resource: String,
        /// What is not understood.
        problem: String,
    },
}

impl LocalTemplate {
    /// The definitions of the deployment's own template.
    ///
    /// # Errors
    /// [`TemplateError`] when this program was built with a template that it does not understand.
    pub fn embedded() -> Result<Self, TemplateError> {
        Self::parse(EMBEDDED)
    }

    /// Reads the tables and queues of a CloudFormation or SAM template and passes over everything else.
    ///
    /// # Errors
    /// [`TemplateError`], which names the resource.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let documents =
            Yaml::load_from_str(text).map_err(|error| TemplateError::NotYaml(error.to_string()))?;
        let resources = documents
            .first()
            .and_then(|document| document.as_mapping_get("Resources"))
            .and_then(Yaml::as_mapping)
            .ok_or(TemplateError::NoResources)?;
        let mut template = Self {
            tables: Vec::new(),
            queues: Vec::new(),
        };
        for (name, resource) in resources {
            let (Some(name), Some(kind)) = (
                name.as_str(),
                resource.as_mapping_get("Type").and_then(Yaml::as_str),
            ) else {
                continue;
            };
            let properties = resource.as_mapping_get("Properties");
            let located = |problem| TemplateError::NotUnderstood {
                resource: name.to_owned(),
                problem,
            };
            match kind {
                TABLE => template
                    .tables
                    .push(table(name, properties).map_err(located)?),
                QUEUE => template
                    .queues
                    .push(queue(name, properties).map_err(located)?),
                _ => {}
            }
        }
        Ok(template)
    }
}

/// What is not understood, without the resource's name.
type Problem = String;

fn table(name: &str, properties: Option<&Yaml<'_>>) -> Result<TableDefinition, Problem> {
    let properties = properties.ok_or("it has no properties")?;
    let kinds = attribute_kinds(required(properties, "AttributeDefinitions")?)?;
    let mut definition = TableDefinition {
        name: name.to_owned(),
        key: key_schema(required(properties, "KeySchema")?, &kinds)?,
        indexes: Vec::new(),
        ttl_attribute: None,
    };
    for (property, value) in entries(properties, "Properties")? {
        match property {
            "KeySchema" => {}
            "GlobalSecondaryIndexes" => {
                for index in elements(value, property)? {
                    definition.indexes.push(secondary_index(index, &kinds)?);
                }
            }
            "TimeToLiveSpecification" => {
                if required(value, "Enabled")?.as_bool() != Some(true) {
                    return Err("TimeToLiveSpecification is not enabled".to_owned());
                }
                definition.ttl_attribute = Some(text(value, "AttributeName")?.to_owned());
            }
            _ if TABLE_PROPERTIES_WITHOUT_LOCAL_MEANING.contains(&property) => {}
            _ => return Err(format!("its property {property} is not known here")),
        }
    }
    Ok(definition)
}

fn secondary_index(
    index: &Yaml<'_>,
    kinds: &BTreeMap<&str, AttributeKind>,
) -> Result<IndexDefinition, Problem> {
    let name = text(index, "IndexName")?;
    let projection = match text(required(index, "Projection")?, "ProjectionType")? {
        "ALL" => Projection::All,
        "KEYS_ONLY" => Projection::KeysOnly,
        other => {
            return Err(format!(
                "the projection {other} of {name} is not known here"
            ));
        }
    };
    Ok(IndexDefinition {
        name: name.to_owned(),
        key: key_schema(required(index, "KeySchema")?, kinds)?,
        projection,
    })
}

fn attribute_kinds<'a>(
    definitions: &'a Yaml<'_>,
) -> Result<BTreeMap<&'a str, AttributeKind>, Problem> {
    let mut kinds = BTreeMap::new();
    for definition in elements(definitions, "AttributeDefinitions")? {
        let kind = match text(definition, "AttributeType")? {
            "S" => AttributeKind::Text,
            "N" => AttributeKind::Number,
            "B" => AttributeKind::Binary,
            other => return Err(format!("{other} is no AttributeType")),
        };
        kinds.insert(text(definition, "AttributeName")?, kind);
    }
    Ok(kinds)
}

fn key_schema(
    schema: &Yaml<'_>,
    kinds: &BTreeMap<&str, AttributeKind>,
) -> Result<KeySchema, Problem> {
    let (mut partition, mut sort) = (None, None);
    for element in elements(schema, "KeySchema")? {
        let name = text(element, "AttributeName")?;
        let kind = *kinds
            .get(name)
            .ok_or_else(|| format!("the key attribute {name} is not in AttributeDefinitions"))?;
        let attribute = Some(KeyAttribute {
            name: name.to_owned(),
            kind,
        });
        match text(element, "KeyType")? {
            "HASH" => partition = attribute,
            "RANGE" => sort = attribute,
            other => return Err(format!("{other} is no KeyType")),
        }
    }
    let partition = partition.ok_or("a KeySchema has no partition key (HASH)")?;
    Ok(KeySchema { partition, sort })
}

fn queue(name: &str, properties: Option<&Yaml<'_>>) -> Result<QueueDefinition, Problem> {
    let mut definition = QueueDefinition {
        name: name.to_owned(),
        visibility_timeout_seconds: None,
        retention_seconds: None,
        redrive: None,
    };
    let Some(properties) = properties else {
        return Ok(definition);
    };
    for (property, value) in entries(properties, "Properties")? {
        match property {
            "VisibilityTimeout" => {
                definition.visibility_timeout_seconds = Some(whole_number(value, property)?);
            }
            "MessageRetentionPeriod" => {
                definition.retention_seconds = Some(whole_number(value, property)?);
            }
            "RedrivePolicy" => definition.redrive = Some(redrive(value)?),
            _ if QUEUE_PROPERTIES_WITHOUT_LOCAL_MEANING.contains(&property) => {}
            _ => return Err(format!("its property {property} is not known here")),
        }
    }
    Ok(definition)
}

fn redrive(policy: &Yaml<'_>) -> Result<Redrive, Problem> {
    let target = required(policy, "deadLetterTargetArn")?;
    let reference = match target {
        Yaml::Tagged(tag, node) if tag.suffix == "GetAtt" => node.as_str(),
        _ => None,
    };
    let dead_letter_queue = reference
        .and_then(|reference| reference.strip_suffix(".Arn"))
        .ok_or("deadLetterTargetArn is expected as !GetAtt <queue>.Arn")?;
    let count = required(policy, "maxReceiveCount")?;
    Ok(Redrive {
        dead_letter_queue: dead_letter_queue.to_owned(),
        max_receive_count: whole_number(count, "maxReceiveCount")?,
    })
}

fn required<'a, 'input>(
    mapping: &'a Yaml<'input>,
    name: &str,
) -> Result<&'a Yaml<'input>, Problem> {
    mapping
        .as_mapping_get(name)
        .ok_or_else(|| format!("{name} is missing"))
}

fn text<'a>(mapping: &'a Yaml<'_>, name: &str) -> Result<&'a str, Problem> {
    required(mapping, name)?
        .as_str()
        .ok_or_else(|| format!("{name} is not a plain text"))
}

fn whole_number(value: &Yaml<'_>, name: &str) -> Result<u32, Problem> {
    value
        .as_integer()
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| format!("{name} is not a plain whole number"))
}

fn elements<'a, 'input>(
    value: &'a Yaml<'input>,
    name: &str,
) -> Result<impl Iterator<Item = &'a Yaml<'input>>, Problem> {
    let list = value
        .as_sequence()
        .ok_or_else(|| format!("{name} is not a plain list"))?;
    Ok(list.iter())
}

fn entries<'a, 'input>(
    value: &'a Yaml<'input>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a str, &'a Yaml<'input>)>, Problem> {
    let mapping = value
        .as_mapping()
        .ok_or_else(|| format!("{name} is not a plain mapping"))?;
    Ok(mapping
        .iter()
        .filter_map(|(key, value)| Some((key.as_str()?, value))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(partition: &str, sort: Option<&str>) -> KeySchema {
        let attribute = |name: &str| KeyAttribute {
            name: name.to_owned(),
            kind: AttributeKind::Text,
        };
        KeySchema {
            partition: attribute(partition),
            sort: sort.map(attribute),
        }
    }

    #[test]
    fn the_deployments_template_is_understood() {
        let template = LocalTemplate::embedded().unwrap();
        let tables: Vec<_> = template
            .tables
            .iter()
            .map(|table| table.name.as_str())
            .collect();
        assert_eq!(
            tables,
            ["KeysTable", "CatalogTable", "StateTable", "AuditTable"]
        );
        assert_eq!(
            template.tables[3],
            TableDefinition {
                name: "AuditTable".to_owned(),
                key: key("partition", Some("event_id")),
                indexes: [("day-index", "day"), ("owner-index", "owner_day")]
                    .map(|(name, partition)| IndexDefinition {
                        name: name.to_owned(),
                        key: key(partition, Some("event_id")),
                        projection: Projection::All,
                    })
                    .into(),
                ttl_attribute: Some("expires_at".to_owned()),
            }
        );
        assert_eq!(
            template.queues[0],
            QueueDefinition {
                name: "AuditQueue".to_owned(),
                visibility_timeout_seconds: Some(190),
                retention_seconds: Some(1_209_600),
                redrive: Some(Redrive {
                    dead_letter_queue: "AuditDeadLetterQueue".to_owned(),
                    max_receive_count: 5,
                }),
            }
        );
    }

    /// AWS asks for this, so that a batch that the function still works on is not delivered again.
    #[test]
    fn a_message_stays_hidden_for_six_runs_of_the_audit_function_and_the_time_to_collect_a_batch() {
        let documents = Yaml::load_from_str(EMBEDDED).unwrap();
        let number = |path: &[&str]| {
            let found = path.iter().fold(&documents[0], |node, name| {
                node.as_mapping_get(name)
                    .unwrap_or_else(|| panic!("{name} in {path:?}"))
            });
            u32::try_from(found.as_integer().unwrap()).unwrap()
        };
        let function = ["Resources", "AuditFunction", "Properties"];
        let source = ["Events", "AuditQueue", "Properties"];
        let timeout = number(&[&function[..], &["Timeout"]].concat());
        let window = ["MaximumBatchingWindowInSeconds"];
        let window = number(&[&function[..], &source, &window].concat());
        let hidden = number(&["Resources", "AuditQueue", "Properties", "VisibilityTimeout"]);
        assert!(
            hidden >= 6 * timeout + window,
            "{hidden} s for {timeout} s and {window} s"
        );
        let local = crate::system::AUDIT_TIMEOUT.as_secs();
        assert_eq!(u64::from(timeout), local, "raglan dev has another timeout");
    }

    fn problem_of(properties: &str) -> String {
        let text = format!("Resources:\n  Things:\n    {properties}\n");
        LocalTemplate::parse(&text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_resource() {
        let table = "Type: AWS::DynamoDB::Table\n    Properties:\n      ";
        let queue = "Type: AWS::SQS::Queue\n    Properties:\n      ";
        let keyed = "{AttributeDefinitions: [{AttributeName: a, AttributeType: S}], \
                     KeySchema: [{AttributeName: a, KeyType: HASH}]";
        let rows = [
            (
                "Type: AWS::DynamoDB::Table".to_owned(),
                "it has no properties",
            ),
            (format!("{table}{{}}"), "AttributeDefinitions is missing"),
            (
                format!("{table}{keyed}, LocalSecondaryIndexes: []}}"),
                "LocalSecondaryIndexes is not",
            ),
            (
                format!("{table}{keyed}, GlobalSecondaryIndexes: !Ref Indexes}}"),
                "GlobalSecondaryIndexes is not a plain list",
            ),
            (
                format!("{queue}FifoQueue: true"),
                "FifoQueue is not known here",
            ),
            (
                format!("{queue}VisibilityTimeout: !Ref Seconds"),
                "VisibilityTimeout is not a plain",
            ),
            (
                format!("{queue}RedrivePolicy: {{deadLetterTargetArn: x, maxReceiveCount: 5}}"),
                "deadLetterTargetArn is expected",
            ),
        ];
        for (properties, expected) in rows {
            let problem = problem_of(&properties);
            assert!(
                problem.contains("Things") && problem.contains(expected),
                "{problem}"
            );
        }
        assert_eq!(LocalTemplate::parse(""), Err(TemplateError::NoResources));
        assert!(matches!(
            LocalTemplate::parse("a: [}"),
            Err(TemplateError::NotYaml(_))
        ));
    }

    proptest! {
        #[test]
        fn no_template_makes_the_parser_panic(text in "[ -~\n]{0,200}") {
            let _ = LocalTemplate::parse(&text);
            let _ = LocalTemplate::parse(&format!("Resources:\n  A:\n    {text}"));
        }
    }
}
