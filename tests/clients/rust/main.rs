//! Driver for the client of rmcp, the official Rust SDK. The first argument is the mode of
//! negotiation: `legacy`, `auto` or `2026-07-28` to insist on. What it reads and prints is described in
//! ../sessions.md.

mod http;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use rmcp::model::{
    CallToolRequestParams, ClientConfig, GetPromptRequestParams, ProtocolVersion,
    ReadResourceRequestParams,
};
use rmcp::service::{
    ClientLifecycleMode, RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value, json};

use self::http::HttpClient;

/// More than any operation needs; a client that hangs must not hold up the others.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mode = std::env::args().nth(1).context("the mode is missing")?;
    let sessions: Vec<Value> = serde_json::from_reader(std::io::stdin())?;
    for (number, session) in sessions.iter().enumerate() {
        let ended =
            match tokio::time::timeout(4 * OPERATION_TIMEOUT, run(number, session, &mode)).await {
                Ok(ended) => ended,
                Err(late) => Err(late.into()),
            };
        match ended {
            Ok(()) => write(number, "disconnect", &json!({ "result": {} }))?,
            Err(error) => {
                let message = format!("{error:#}");
                let error = json!({ "type": "client", "message": message, "code": null });
                write(number, "session", &json!({ "error": error }))?;
            }
        }
    }
    Ok(())
}

async fn run(number: usize, session: &Value, mode: &str) -> anyhow::Result<()> {
    let text = |name: &str| session[name].as_str().unwrap_or_default().to_owned();
    let config =
        StreamableHttpClientTransportConfig::with_uri(text("url")).auth_header(text("key"));
    let transport = StreamableHttpClientTransport::with_client(HttpClient::default(), config);
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match mode {
        "legacy" => ClientLifecycleMode::Initialize,
        "auto" => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
        _ => ClientLifecycleMode::Discover { preferred_versions },
    };
    let client = serve_client_with_lifecycle(Client, transport, lifecycle).await?;
    let server = client.peer_info().context("the server told nothing")?;
    write(number, "connect", &json!({ "result": server.as_ref() }))?;
    let none = Vec::new();
    for operation in session["operations"].as_array().unwrap_or(&none) {
        let name = operation["do"].as_str().unwrap_or_default();
        let outcome = tokio::time::timeout(OPERATION_TIMEOUT, perform(&client, operation)).await?;
        let line = match outcome {
            Ok(result) => json!({ "result": result }),
            Err(error) => json!({ "error": describe(&error) }),
        };
        write(number, name, &line)?;
    }
    client.cancel().await?;
    Ok(())
}

async fn perform(
    client: &RunningService<RoleClient, Client>,
    operation: &Value,
) -> Result<Value, ServiceError> {
    let text = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
    let arguments: Map<String, Value> = operation["arguments"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    Ok(match text("do").as_str() {
        "list_tools" => json!(client.list_tools(None).await?),
        "call_tool" => {
            let call = CallToolRequestParams::new(text("name")).with_arguments(arguments);
            json!(client.call_tool(call).await?)
        }
        "list_prompts" => json!(client.list_prompts(None).await?),
        "get_prompt" => {
            let prompt = GetPromptRequestParams::new(text("name")).with_arguments(arguments);
            json!(client.get_prompt(prompt).await?)
        }
        "list_resources" => json!(client.list_resources(None).await?),
        "read_resource" => {
            let resource = ReadResourceRequestParams::new(text("uri"));
            json!(client.read_resource(resource).await?)
        }
        _ => Value::Null,
    })
}

fn describe(error: &ServiceError) -> Value {
    let code = match error {
        ServiceError::McpError(error) => Some(error.code.0),
        _ => None,
    };
    json!({ "type": "ServiceError", "message": error.to_string(), "code": code })
}

fn write(session: usize, operation: &str, outcome: &Value) -> anyhow::Result<()> {
    let mut line = json!({ "session": session, "do": operation });
    if let (Some(line), Some(outcome)) = (line.as_object_mut(), outcome.as_object()) {
        line.extend(outcome.clone());
    }
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
