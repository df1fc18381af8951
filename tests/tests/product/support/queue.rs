//! A queue that is not always well: it stands before SQS and does what a test tells it to, to messages
//! alone. Everything else passes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::timeline::Timeline;
use super::upstream::Upstream;

/// Noted when a message arrives.
pub const SEND_BEGINS: &str = "send begins";
/// Noted when its sender is told that it was taken.
pub const SEND_ENDS: &str = "send ends";

/// What the queue does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Takes it.
    Takes,
    /// Takes it after a while.
    Slow(Duration),
    /// Takes it when [`Queue::release`] is called.
    Held,
    /// Answers with this status and code.
    Refuses(u16, &'static str),
    /// Takes it and never says so.
    TakesAndHangs,
    /// Does not take it, and says nothing.
    Hangs,
}

/// The queue. Ends when it is dropped.
pub struct Queue {
    /// Where clients connect.
    pub url: String,
    /// Its steps.
    pub timeline: Timeline,
    moods: Arc<Mutex<Moods>>,
    released: watch::Sender<bool>,
}

struct Moods {
    next: VecDeque<Mood>,
    usual: Mood,
}

impl Queue {
    /// A queue that takes everything, before the SQS at `url`.
    pub async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_url = format!("http://{}", listener.local_addr().unwrap());
        let moods = Arc::new(Mutex::new(Moods {
            next: VecDeque::new(),
            usual: Mood::Takes,
        }));
        let timeline = Timeline::default();
        let released = watch::Sender::new(false);
        let door = Door {
            upstream: Upstream::at(url),
            moods: Arc::clone(&moods),
            timeline: timeline.clone(),
            released: released.subscribe(),
        };
        tokio::spawn(door.serve(listener));
        Self {
            url: own_url,
            timeline,
            moods,
            released,
        }
    }

    /// What is done with the next messages, one after the other.
    pub fn next(&self, moods: impl IntoIterator<Item = Mood>) {
        self.moods.lock().unwrap().next.extend(moods);
    }

    /// What is done with all others from now on.
    pub fn always(&self, mood: Mood) {
        self.moods.lock().unwrap().usual = mood;
        self.released.send_replace(false);
    }

    /// Lets go of what is held.
    pub fn release(&self) {
        self.released.send_replace(true);
    }
}

#[derive(Clone)]
struct Door {
    upstream: Upstream,
    moods: Arc<Mutex<Moods>>,
    timeline: Timeline,
    released: watch::Receiver<bool>,
}

impl Door {
    async fn serve(mut self, listener: TcpListener) {
        loop {
            let (stream, _) = tokio::select! {
                accepted = listener.accept() => accepted.unwrap(),
                ended = self.released.changed() => match ended {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            let door = self.clone();
            let service = service_fn(move |request| {
                let door = door.clone();
                async move { Ok::<_, Infallible>(door.answer(request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    }

    async fn answer(mut self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let target = parts.headers.get("x-amz-target");
        if target.is_none_or(|target| target != "AmazonSQS.SendMessage") {
            return self.pass_on(parts, body).await;
        }
        let mood = {
            let mut moods = self.moods.lock().unwrap();
            let usual = moods.usual;
            moods.next.pop_front().unwrap_or(usual)
        };
        self.timeline.note(SEND_BEGINS);
        match mood {
            Mood::Takes => {}
            Mood::Slow(delay) => tokio::time::sleep(delay).await,
            Mood::Held => {
                let _ = self.released.wait_for(|released| *released).await;
            }
            Mood::Refuses(status, code) => return refusal(status, code),
            Mood::TakesAndHangs => {
                self.pass_on(parts, body).await;
                return std::future::pending().await;
            }
            Mood::Hangs => return std::future::pending().await,
        }
        let answer = self.pass_on(parts, body).await;
        self.timeline.note(SEND_ENDS);
        answer
    }

    async fn pass_on(&self, parts: http::request::Parts, body: Bytes) -> Response<Full<Bytes>> {
        let answer = self.upstream.answer(parts, body).await;
        answer.unwrap_or_else(|| refusal(503, "ServiceUnavailable"))
    }
}

fn refusal(status: u16, code: &str) -> Response<Full<Bytes>> {
    let body = format!(r#"{{"__type":"com.amazonaws.sqs#{code}","message":"told to by a test"}}"#);
    Response::builder()
        .status(status)
        .header("content-type", "application/x-amz-json-1.0")
        .body(Full::new(Bytes::from(body)))
        .unwrap()
}
