use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::system::write_private;

fn arguments(stack: Option<&str>, state_dir: Option<&str>) -> TargetArguments {
    TargetArguments {
        stack: stack.map(ToOwned::to_owned),
        state_dir: state_dir.map(PathBuf::from),
        ..TargetArguments::default()
    }
}

fn chosen(arguments: &TargetArguments, environment: &[(&str, &str)]) -> Result<Choice, Failure> {
    choose(arguments, &|name: &str| {
        let found = environment.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn options_come_before_the_environment_and_the_environment_before_the_folder() {
    let stack = |name: &str| Ok(Choice::Stack(name.to_owned()));
    let folder = |name: &str| Ok(Choice::Folder(name.into()));
    let tables = [("KEYS_TABLE", "k"), ("RAGLAN_STACK", "s")];
    let nothing = arguments(None, None);
    assert_eq!(chosen(&nothing, &[]), folder(".raglan"));
    assert_eq!(chosen(&nothing, &tables[..1]), Ok(Choice::Environment));
    assert_eq!(
        chosen(&nothing, &[("CATALOG_TABLE", "c")]),
        Ok(Choice::Environment)
    );
    assert_eq!(chosen(&nothing, &tables), stack("s"));
    assert_eq!(chosen(&arguments(None, Some("x")), &tables), folder("x"));
    assert_eq!(
        chosen(&arguments(Some("mine"), None), &tables),
        stack("mine")
    );
}

#[test]
fn an_account_without_a_deployment_in_it_is_a_wrong_command_line() {
    let account = TargetArguments {
        profile: Some("work".to_owned()),
        ..TargetArguments::default()
    };
    assert!(matches!(chosen(&account, &[]), Err(Failure::Usage(_))));
    assert_eq!(
        chosen(&account, &[("KEYS_TABLE", "k")]),
        Ok(Choice::Environment)
    );
}

#[test]
fn only_addresses_of_this_machine_are_local() {
    for local in [
        "http://127.0.0.1:8000",
        "http://localhost:4566/",
        "http://[::1]:1",
    ] {
        assert!(is_loopback(local), "{local}");
    }
    for other in [
        "https://dynamodb.eu-north-1.amazonaws.com",
        "http://127.0.0.1.example",
        "",
        "x",
    ] {
        assert!(!is_loopback(other), "{other}");
    }
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_not_made_to_look_into() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    let arguments = arguments(None, missing.to_str());
    let error = Target::open(&arguments, MissingFolder::Refuse)
        .await
        .err()
        .unwrap();
    assert!(
        matches!(error.downcast_ref(), Some(Failure::NotFound(_))),
        "{error}"
    );
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_running_local_system_is_used_and_a_stopped_one_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = arguments(None, folder.path().to_str());
    let system = LocalSystem::start(folder.path()).await.unwrap();
    system.mint_key("test").await.unwrap();
    let mut text = String::from("RAGLAN_URL=http://127.0.0.1:8420/mcp\n");
    for (name, value) in system.variables() {
        text.push_str(&[name, "=", &value, "\n"].concat());
    }
    write_private(&folder.path().join(RUNNING_FILE), &text).unwrap();

    let running = Target::open(&arguments, MissingFolder::Refuse)
        .await
        .unwrap();
    assert!(running.local_system().is_none());
    assert_eq!(running.endpoint(), Some("http://127.0.0.1:8420/mcp"));
    assert_eq!(running.keys().unwrap().list().await.unwrap().len(), 1);
    assert!(running.operator().await.unwrap().starts_with("local:"));
    running.close().await.unwrap();

    // The file stays behind when a system is killed.
    system.emulators.shutdown().await;
    let stopped = Target::open(&arguments, MissingFolder::Refuse)
        .await
        .unwrap();
    assert!(stopped.local_system().is_some());
    assert_eq!(stopped.endpoint(), None);
    assert_eq!(stopped.keys().unwrap().list().await.unwrap().len(), 1);
    stopped.close().await.unwrap();
}

/// Answers like the AWS query protocol, and notes the bodies of the requests.
async fn aws(
    answer: impl Fn(&str) -> (u16, String) + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = String::new();
            let mut bytes = [0; 4096];
            // The bodies are short: they are complete when the last parameter has come.
            while !request.contains("Version=") {
                match stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(length) => request.push_str(&String::from_utf8_lossy(&bytes[..length])),
                }
            }
            let (status, body) = answer(&request);
            notes.lock().unwrap().push(request);
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: text/xml\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    (url, seen)
}

async fn account_at(url: &str) -> SdkConfig {
    let credentials = Credentials::new("id", "secret", None, None, "test");
    let account = AccountChoice {
        region: Some("eu-north-1".to_owned()),
        profile: None,
    };
    let config = account.load().await;
    config
        .into_builder()
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(url)
        .build()
}

fn output(key: &str, value: &str) -> String {
    format!("<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>")
}

#[tokio::test]
async fn a_stack_says_where_its_parts_are_and_sts_says_who_asks() {
    let outputs = [
        output("KeysTable", "raglan-KeysTable-1"),
        output("CatalogTable", "raglan-CatalogTable-2"),
        output("StateTable", "raglan-StateTable-3"),
        output(
            "AuditQueueUrl",
            "https://sqs.eu-north-1.amazonaws.com/1/audit",
        ),
        output("McpUrl", "https://abc.lambda-url.eu-north-1.on.aws/mcp"),
    ]
    .concat();
    let (url, seen) = aws(move |request| {
        let body = if request.contains("Action=DescribeStacks") {
            format!(
                "<DescribeStacksResponse><DescribeStacksResult><Stacks><member>\
                 <StackName>raglan</StackName><CreationTime>2026-11-30T00:00:00Z</CreationTime>\
                 <StackStatus>CREATE_COMPLETE</StackStatus><Outputs>{outputs}</Outputs>\
                 </member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
            )
        } else {
            "<GetCallerIdentityResponse><GetCallerIdentityResult>\
             <Arn>arn:aws:iam::123456789012:user/anna</Arn></GetCallerIdentityResult>\
             </GetCallerIdentityResponse>"
                .to_owned()
        };
        (200, body)
    })
    .await;
    let target = Target::of_stack(account_at(&url).await, "raglan")
        .await
        .unwrap();
    assert_eq!(
        target.names.keys_table.as_deref(),
        Some("raglan-KeysTable-1")
    );
    assert_eq!(
        target.names.catalog_table.as_deref(),
        Some("raglan-CatalogTable-2")
    );
    assert_eq!(target.state_table().unwrap(), "raglan-StateTable-3");
    assert_eq!(
        target.endpoint(),
        Some("https://abc.lambda-url.eu-north-1.on.aws/mcp")
    );
    assert!(target.audit_queue().is_ok());
    assert!(matches!(target.index_dir(), Err(Failure::Usage(_))));
    assert_eq!(target.description(), "the stack raglan in eu-north-1");
    assert_eq!(
        target.operator().await.unwrap(),
        "arn:aws:iam::123456789012:user/anna"
    );
    assert!(seen.lock().unwrap()[0].contains("StackName=raglan"));
}

#[tokio::test]
async fn a_stack_that_is_not_there_is_told_from_one_that_may_not_be_read() {
    for (code, outcome) in [
        ("ValidationError", crate::Outcome::NotFound),
        ("AccessDenied", crate::Outcome::Failed),
    ] {
        let body = format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>m</Message></Error>\
             </ErrorResponse>"
        );
        let (url, _) = aws(move |_| (400, body.clone())).await;
        let error = Target::of_stack(account_at(&url).await, "raglan")
            .await
            .err()
            .unwrap();
        assert_eq!(crate::failure::outcome_of(&error), outcome, "{error:#}");
        let error = format!("{error:#}");
        assert!(error.contains("raglan") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn the_outputs_that_are_read_are_outputs_of_the_template() {
    let template = include_str!("../../../template.yaml");
    let outputs = template.split_once("\nOutputs:").unwrap().1;
    for name in [
        "KeysTable",
        "CatalogTable",
        "StateTable",
        "AuditQueueUrl",
        "McpUrl",
    ] {
        assert!(outputs.contains(&format!("\n  {name}:\n")), "{name}");
    }
}
