//! A server that answers as a test tells it to, byte for byte, and remembers what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// Answers with this status, content type, further header lines and body.
    Answer(u16, &'static str, &'static str, String),
    /// Promises more bytes than it sends, and closes.
    HalfABody,
    /// Ten megabytes of JSON.
    TenMegabytes,
    /// One byte a second.
    Trickle,
    /// Says nothing.
    Hang,
    /// Closes without a word.
    Close,
}

impl Behaviour {
    /// A good answer.
    pub fn json(body: &Value) -> Self {
        Self::status(200, body)
    }

    /// An answer in JSON.
    pub fn status(status: u16, body: &Value) -> Self {
        Self::Answer(status, "application/json", "", body.to_string())
    }

    /// A page for people.
    pub fn html(status: u16) -> Self {
        let page = "<!doctype html><title>Sign in</title>".to_owned();
        Self::Answer(status, "text/html; charset=utf-8", "", page)
    }
}

/// What the server was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// Method and target: `POST /v1/search?a=b`.
    pub line: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body; null when there was none.
    pub body: Value,
}

/// A server on a port of its own, for as long as the test runs.
pub struct FakeEngine {
    pub url: String,
    script: Arc<Mutex<VecDeque<Behaviour>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl FakeEngine {
    /// A server that does one of these after the other, and the last one for ever.
    pub async fn start(script: impl IntoIterator<Item = Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let engine = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            received: Arc::default(),
        };
        let (script, received) = (Arc::clone(&engine.script), Arc::clone(&engine.received));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&received)));
            }
        });
        engine
    }

    /// From now on the server does this.
    pub fn order(&self, behaviour: Behaviour) {
        self.order_all([behaviour]);
    }

    /// From now on the server does one of these after the other, and the last one for ever.
    pub fn order_all(&self, script: impl IntoIterator<Item = Behaviour>) {
        *self.script.lock().unwrap() = script.into_iter().collect();
    }

    /// Everything that it was asked so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The only request, or the last one.
    pub fn last(&self) -> Received {
        self.received().pop().unwrap()
    }
}

async fn serve(
    stream: TcpStream,
    script: Arc<Mutex<VecDeque<Behaviour>>>,
    received: Arc<Mutex<Vec<Received>>>,
) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    received.lock().unwrap().push(request);
    let behaviour = {
        let mut script = script.lock().unwrap();
        let next = script.front().cloned().unwrap_or(Behaviour::Close);
        if script.len() > 1 {
            script.pop_front();
        }
        next
    };
    let _ = answer(stream.get_mut(), behaviour).await;
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let line = line.trim_end().strip_suffix(" HTTP/1.1")?.to_owned();
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

async fn answer(stream: &mut TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    match behaviour {
        Behaviour::Answer(status, content_type, headers, body) => {
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\n{headers}\
                 content-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
        }
        Behaviour::HalfABody => {
            let text = format!("{JSON}content-length: 100\r\n\r\n{{\"data\":[");
            stream.write_all(text.as_bytes()).await?;
        }
        Behaviour::TenMegabytes => {
            let body = format!("{{\"data\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
            let head = format!("{JSON}content-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
        }
        Behaviour::Trickle => {
            let head = format!("{JSON}content-length: 100000\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(b" ").await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Behaviour::Hang => std::future::pending::<()>().await,
        Behaviour::Close => {}
    }
    stream.shutdown().await
}
