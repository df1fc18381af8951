//! An endpoint that speaks OpenAI's Chat Completions, says what a test tells it to, and remembers what
//! it was asked, byte for byte.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What the endpoint does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The model says this.
    Says(&'static str),
    /// The same, after [`ChatEndpoint::release`].
    SaysLater(&'static str),
    /// The answer has this choice.
    Choice(Value),
    /// This status, content type and body.
    Body(u16, &'static str, String),
    /// Promises more than it sends.
    HalfABody,
    /// Says nothing at all.
    Hangs,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Received {
    /// Everything before the body.
    pub head: String,
    /// The body.
    pub body: Value,
}

impl Received {
    /// The text of a message, counted from 0.
    pub fn message(&self, at: usize) -> &str {
        self.body["messages"][at]["content"].as_str().unwrap()
    }

    /// The text of the last message: the passages and the question.
    pub fn asked(&self) -> &str {
        let messages = self.body["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap()
    }
}

/// The endpoint, for as long as the test runs.
pub struct ChatEndpoint {
    /// What comes before `/v1/chat/completions`.
    pub url: String,
    script: Arc<Mutex<VecDeque<Reply>>>,
    received: Arc<Mutex<Vec<Received>>>,
    arrived: Arc<Notify>,
    released: Arc<Notify>,
}

impl ChatEndpoint {
    /// An endpoint that does one of these after the other, and the last one for ever.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            received: Arc::default(),
            arrived: Arc::default(),
            released: Arc::default(),
        };
        let shared = endpoint.shared();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move { serve(stream, shared).await });
            }
        });
        endpoint
    }

    /// From now on the endpoint does this.
    pub fn order(&self, reply: Reply) {
        *self.script.lock().unwrap() = VecDeque::from([reply]);
    }

    /// Everything that it was asked so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The last request.
    pub fn last(&self) -> Received {
        self.received().pop().unwrap()
    }

    /// Waits for the next request.
    pub async fn asked(&self) {
        let patience = Duration::from_secs(30);
        tokio::time::timeout(patience, self.arrived.notified())
            .await
            .unwrap();
    }

    /// Lets one [`Reply::SaysLater`] go.
    pub fn release(&self) {
        self.released.notify_one();
    }

    /// The value of `ANSWERS` that leads here. The credential is [`super::world::ENGINE_KEY`].
    pub fn configuration(&self) -> String {
        let url = &self.url;
        json!({
            "type": "openai", "url": format!("{url}/v1"), "model": "test-model",
            "credential": "env:ENGINE_KEY", "max_tokens": 500
        })
        .to_string()
    }

    fn shared(&self) -> Shared {
        Shared {
            script: Arc::clone(&self.script),
            received: Arc::clone(&self.received),
            arrived: Arc::clone(&self.arrived),
            released: Arc::clone(&self.released),
        }
    }
}

#[derive(Clone)]
struct Shared {
    script: Arc<Mutex<VecDeque<Reply>>>,
    received: Arc<Mutex<Vec<Received>>>,
    arrived: Arc<Notify>,
    released: Arc<Notify>,
}

/// An answer of the API reference with this choice.
fn completion(choice: &Value) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_796_026_500,
        "model": "test-model-2026", "choices": [choice],
        "usage": { "prompt_tokens": 700, "completion_tokens": 30, "total_tokens": 730 }
    })
    .to_string()
}

/// A choice in which the model says this.
pub fn choice(content: &str, finish_reason: &str) -> Value {
    json!({
        "index": 0, "finish_reason": finish_reason, "logprobs": null,
        "message": { "role": "assistant", "content": content, "refusal": null }
    })
}

async fn serve(mut stream: TcpStream, shared: Shared) {
    let Some(received) = read(&mut stream).await else {
        return;
    };
    shared.received.lock().unwrap().push(received);
    let reply = {
        let mut script = shared.script.lock().unwrap();
        match script.len() {
            1 => script[0].clone(),
            _ => script.pop_front().unwrap(),
        }
    };
    shared.arrived.notify_one();
    let (status, content_type, body) = match reply {
        Reply::Says(text) => (200, "application/json", completion(&choice(text, "stop"))),
        Reply::SaysLater(text) => {
            shared.released.notified().await;
            (200, "application/json", completion(&choice(text, "stop")))
        }
        Reply::Choice(choice) => (200, "application/json", completion(&choice)),
        Reply::Body(status, content_type, body) => (status, content_type, body),
        Reply::HalfABody => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{\"ch";
            let _ = stream.write_all(head.as_bytes()).await;
            return;
        }
        Reply::Hangs => return std::future::pending().await,
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let lower = head.to_ascii_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?;
    let length: usize = length.trim().parse().unwrap();
    while bytes.len() < head_end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head_end..]).unwrap();
    Some(Received { head, body })
}
