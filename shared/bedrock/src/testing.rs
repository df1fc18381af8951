//! A server that speaks the protocol of Bedrock (REST with JSON), answers as a test tells it to, and
//! remembers what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_bedrockagent::config::{Credentials, SharedCredentialsProvider};
use raglan_aws::LazyAccount;
use raglan_core::clock::{Clock, ManualClock, Timestamp};
use raglan_engines::configuration::{Kind, parse};
use raglan_rag::backend::{EngineCall, RetrieveRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::BedrockBackend;

/// A knowledge base.
pub const KB: &str = "KB12345678";
/// One of its data sources.
pub const SOURCE: &str = "DS12345678";
/// Replies are no larger in tests.
pub const RESPONSE_MAX_BYTES: usize = 64 * 1024;

/// What the server does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A good answer.
    Json(Value),
    /// An error of the service: HTTP status, code, message.
    Error(u16, &'static str, &'static str),
    /// A page for people.
    Html,
    /// Promises more bytes than it sends, and closes.
    HalfABody,
    /// More than [`RESPONSE_MAX_BYTES`].
    TooLarge,
    /// Says nothing.
    Hang,
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub struct Received {
    /// Method and path: `POST /knowledgebases/KB12345678/retrieve`.
    pub line: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body; null when there was none.
    pub body: Value,
}

/// A server on a port of its own.
#[derive(Clone)]
pub struct FakeBedrock {
    pub url: String,
    routes: Arc<Mutex<BTreeMap<String, VecDeque<Reply>>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl FakeBedrock {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            routes: Arc::default(),
            received: Arc::default(),
        };
        let serving = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        fake
    }

    /// The knowledge base is of this type: `MANAGED`, `VECTOR`, `SQL`, `KENDRA`.
    pub fn is_of_type(&self, kind: &str) {
        let knowledge_base = json!({ "knowledgeBase": {
            "knowledgeBaseId": KB, "name": "Staff handbook", "status": "ACTIVE",
            "knowledgeBaseArn": format!("arn:aws:bedrock:eu-central-1:123456789012:knowledge-base/{KB}"),
            "roleArn": "arn:aws:iam::123456789012:role/kb", "createdAt": "2026-01-01T00:00:00Z",
            "updatedAt": "2026-02-01T00:00:00Z",
            "knowledgeBaseConfiguration": { "type": kind, "vectorKnowledgeBaseConfiguration": {
                "embeddingModelArn":
                    "arn:aws:bedrock:eu-central-1::foundation-model/amazon.titan-embed-text-v2:0",
                "embeddingModelConfiguration": { "bedrockEmbeddingModelConfiguration": { "dimensions": 1024 } },
            } },
        } });
        self.on(
            &format!("GET /knowledgebases/{KB}"),
            [Reply::Json(knowledge_base)],
        );
    }

    /// Requests with this line get one of these after the other, and the last one for ever.
    pub fn on(&self, line: &str, replies: impl IntoIterator<Item = Reply>) {
        let replies = replies.into_iter().collect();
        self.routes.lock().unwrap().insert(line.to_owned(), replies);
    }

    /// Searches get one of these after the other.
    pub fn on_retrieve(&self, replies: impl IntoIterator<Item = Reply>) {
        self.on(&format!("POST /knowledgebases/{KB}/retrieve"), replies);
    }

    /// What it was asked with a line that ends like this.
    pub fn asked(&self, end: &str) -> Vec<Received> {
        let received = self.received.lock().unwrap();
        let fitting = received.iter().filter(|one| one.line.ends_with(end));
        fitting.cloned().collect()
    }

    /// The bodies of the searches.
    pub fn searches(&self) -> Vec<Value> {
        let asked = self.asked("/retrieve");
        asked.into_iter().map(|one| one.body).collect()
    }

    /// The account whose services are all here.
    pub fn account(&self) -> Arc<LazyAccount> {
        let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(raglan_aws::transport::sdk_http_client())
            .endpoint_url(&self.url)
            .build();
        Arc::new(LazyAccount::loaded(config))
    }

    /// The engine with these further settings.
    pub fn backend(&self, settings: &Value) -> BedrockBackend {
        let mut engine = json!({ "type": "bedrock", "response_max_bytes": RESPONSE_MAX_BYTES });
        for (name, value) in settings.as_object().unwrap() {
            engine[name] = value.clone();
        }
        let parsed = parse(&json!({ "aws": engine }).to_string()).unwrap();
        let configuration = &parsed["aws"];
        let Kind::Bedrock(settings) = &configuration.kind else {
            panic!("{configuration:?}");
        };
        BedrockBackend::new("aws", configuration, settings, self.account(), &clock())
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let Some(request) = read_request(&mut stream).await else {
            return;
        };
        let reply = {
            let mut routes = self.routes.lock().unwrap();
            let replies = routes.entry(request.line.clone()).or_default();
            let next = replies.front().cloned();
            if replies.len() > 1 {
                replies.pop_front();
            }
            next.unwrap_or(Reply::Error(
                404,
                "ResourceNotFoundException",
                "nobody told the server what to say",
            ))
        };
        self.received.lock().unwrap().push(request);
        let _ = answer(stream.get_mut(), reply).await;
    }
}

/// The test's clock.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(
        Timestamp::parse("2026-11-30T12:00:00Z").unwrap(),
    ))
}

/// A call with time enough.
pub fn call() -> EngineCall {
    EngineCall::within(Duration::from_secs(20))
}

/// A search for five passages.
pub fn request() -> RetrieveRequest {
    RetrieveRequest {
        query: "How many days of leave?".to_owned(),
        top_k: 5,
        min_score: None,
        filters: raglan_rag::backend::Filters::default(),
    }
}

/// A result of a search, as Bedrock writes it.
pub fn result(text: &str, score: f64, metadata: &Value) -> Value {
    json!({
        "content": { "type": "TEXT", "text": text },
        "location": { "type": "S3", "s3Location": { "uri": "s3://handbook/hr/leave.md" } },
        "score": score,
        "metadata": metadata,
    })
}

/// A page of results.
pub fn results(results: &[Value]) -> Reply {
    Reply::Json(json!({ "retrievalResults": results }))
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let line = line.trim_end().strip_suffix(" HTTP/1.1")?;
    let line = line.trim_end_matches('/').to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(Some(0), |text| text.parse().ok())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received {
        line,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

async fn answer(stream: &mut TcpStream, reply: Reply) -> std::io::Result<()> {
    let (status, content_type, further, body) = match reply {
        Reply::Json(body) => (200, "application/json", String::new(), body.to_string()),
        Reply::Error(status, code, message) => (
            status,
            "application/json",
            format!("x-amzn-errortype: {code}:http://internal.amazon.com/\r\n"),
            json!({ "message": message }).to_string(),
        ),
        Reply::Html => (
            200,
            "text/html",
            String::new(),
            "<!doctype html><title>Proxy</title>".to_owned(),
        ),
        Reply::HalfABody => {
            let text = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"retrievalResults\":[";
            stream.write_all(text.as_bytes()).await?;
            return stream.shutdown().await;
        }
        Reply::TooLarge => (
            200,
            "application/json",
            String::new(),
            json!({ "retrievalResults": [], "x": "x".repeat(2 * RESPONSE_MAX_BYTES) }).to_string(),
        ),
        Reply::Hang => std::future::pending().await,
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\n{further}content-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
