//! The part of S3 that is used here, as its API reference describes it: entity tags, conditional GET and
//! PUT, checksums, lists, and errors in XML.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONTENT_LENGTH, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

pub(crate) const BUCKET: &str = "team-indexes";
const SHA256: &str = "x-amz-checksum-sha256";

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// 503 to everything.
    Down,
    /// 403 to everything.
    Denied,
    /// Archives end in the middle.
    Truncated,
    /// Archives stop in the middle and never go on.
    Stalled,
    /// One byte of each archive is another one, and no checksum tells.
    Altered,
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

struct State {
    objects: BTreeMap<String, (Bytes, u64)>,
    writes: u64,
    trouble: Trouble,
    /// Method and key of every request.
    requests: Vec<(Method, String)>,
    /// Put in place of the next object that is written there, before that.
    overtaking: Option<(String, Bytes)>,
}

#[derive(Clone)]
pub(crate) struct FakeS3 {
    state: Arc<Mutex<State>>,
    url: String,
}

impl FakeS3 {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            writes: 0,
            trouble: Trouble::None,
            requests: Vec::new(),
            overtaking: None,
        }));
        let this = Self { state, url };
        let served = this.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                let service = hyper::service::service_fn(move |request| {
                    let served = served.clone();
                    async move { Ok::<_, Infallible>(served.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        this
    }

    /// An account whose S3 this is.
    pub(crate) fn account(&self) -> SdkConfig {
        let credentials =
            aws_sdk_s3::config::Credentials::new("local", "local", None, None, "tests");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(aws_sdk_s3::config::SharedCredentialsProvider::new(
                credentials,
            ))
            .retry_config(aws_config::retry::RetryConfig::disabled())
            .endpoint_url(&self.url)
            .build()
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.state.lock().unwrap().trouble = trouble;
    }

    pub(crate) fn put(&self, key: &str, body: impl Into<Bytes>) {
        self.state.lock().unwrap().put(key, body.into());
    }

    pub(crate) fn get(&self, key: &str) -> Option<Bytes> {
        let state = self.state.lock().unwrap();
        state.objects.get(key).map(|(body, _)| body.clone())
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }

    pub(crate) fn overtake(&self, key: &str, body: impl Into<Bytes>) {
        self.state.lock().unwrap().overtaking = Some((key.to_owned(), body.into()));
    }

    /// How many requests of this method there were whose keys end so, and forgets all of them.
    pub(crate) fn take_requests(&self, method: &Method, end: &str) -> usize {
        let requests = std::mem::take(&mut self.state.lock().unwrap().requests);
        let fits = |(of, key): &&(Method, String)| of == method && key.ends_with(end);
        requests.iter().filter(fits).count()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path().trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let mut state = self.state.lock().unwrap();
        state.requests.push((parts.method.clone(), key.to_owned()));
        match state.trouble {
            Trouble::Down => return error(503, "SlowDown"),
            Trouble::Denied => return error(403, "AccessDenied"),
            _ => {}
        }
        assert!(
            parts.headers.contains_key("authorization"),
            "every request is signed"
        );
        if bucket != BUCKET {
            return error(404, "NoSuchBucket");
        }
        let header = |name: http::HeaderName| {
            let value = parts.headers.get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        match parts.method {
            Method::GET if key.is_empty() => state.list(parts.uri.query().unwrap_or_default()),
            Method::GET => state.read(key, header(IF_NONE_MATCH).as_deref()),
            Method::PUT => {
                let announced = parts
                    .headers
                    .get(SHA256)
                    .map(|value| value.to_str().unwrap());
                if announced.is_some_and(|sha| sha != STANDARD.encode(Sha256::digest(&body))) {
                    return error(400, "BadDigest");
                }
                let condition = (header(IF_MATCH), header(IF_NONE_MATCH));
                state.write(key, body, condition)
            }
            Method::DELETE => {
                state.objects.remove(key);
                answer(204, "")
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }
}

impl State {
    fn put(&mut self, key: &str, body: Bytes) {
        self.writes += 1;
        self.objects.insert(key.to_owned(), (body, self.writes));
    }

    fn etag(&self, key: &str) -> Option<String> {
        let (body, _) = self.objects.get(key)?;
        let digest = Sha256::digest(body);
        Some(format!("\"{}\"", STANDARD.encode(&digest[..16])))
    }

    fn read(&self, key: &str, known_etag: Option<&str>) -> Response<Body> {
        let Some((body, _)) = self.objects.get(key) else {
            return error(404, "NoSuchKey");
        };
        let etag = self.etag(key).unwrap();
        if known_etag == Some(etag.as_str()) {
            return answer(304, "");
        }
        let is_archive = key.rsplit_once('.').is_some_and(|(_, kind)| kind == "lz4");
        let mut body = body.clone();
        if is_archive && self.trouble == Trouble::Altered {
            let mut bytes = body.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            body = bytes.into();
        }
        let response = Response::builder()
            .header(ETAG, etag)
            .header(CONTENT_LENGTH, body.len());
        let half = Ok(Frame::data(body.slice(..body.len() / 2)));
        let sent = match self.trouble {
            Trouble::Truncated if is_archive => {
                let end = Err(io::Error::from(io::ErrorKind::ConnectionReset));
                StreamBody::new(futures::stream::iter([half, end])).boxed_unsync()
            }
            Trouble::Stalled if is_archive => {
                let begun = futures::stream::iter([half]).chain(futures::stream::pending());
                StreamBody::new(begun).boxed_unsync()
            }
            _ => whole(body),
        };
        response.body(sent).unwrap()
    }

    fn write(
        &mut self,
        key: &str,
        body: Bytes,
        (if_match, if_none_match): (Option<String>, Option<String>),
    ) -> Response<Body> {
        if let Some((_, other)) = self.overtaking.take_if(|(of, _)| of == key) {
            self.put(key, other);
        }
        let etag = self.etag(key);
        if if_none_match.as_deref() == Some("*") && etag.is_some() {
            return error(412, "PreconditionFailed");
        }
        if if_match.is_some() && etag.is_none() {
            return error(404, "NoSuchKey");
        }
        if if_match.is_some() && if_match != etag {
            return error(412, "PreconditionFailed");
        }
        self.put(key, body);
        let response = Response::builder().header(ETAG, self.etag(key).unwrap());
        response.body(whole(Bytes::new())).unwrap()
    }

    /// `ListObjectsV2`, one object a page.
    fn list(&self, query: &str) -> Response<Body> {
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(key, _)| *key == name)?.1;
            Some(value.replace("%2F", "/"))
        };
        let prefix = parameter("prefix").unwrap_or_default();
        let after = parameter("continuation-token").unwrap_or_default();
        let mut found = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
        let Some((key, (body, written))) = found.next() else {
            return answer(
                200,
                "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>",
            );
        };
        let next = found.next().map_or_else(String::new, |_| {
            format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{key}</NextContinuationToken>")
        });
        let page = format!(
            "<ListBucketResult>{next}<Contents><Key>{key}</Key>\
             <LastModified>2026-11-30T00:{:02}:{:02}.000Z</LastModified><Size>{}</Size></Contents></ListBucketResult>",
            written / 60,
            written % 60,
            body.len()
        );
        answer(200, &page)
    }
}

fn whole(body: Bytes) -> Body {
    Full::new(body)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

fn answer(status: u16, body: &str) -> Response<Body> {
    let mut response = Response::new(whole(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn error(status: u16, code: &str) -> Response<Body> {
    answer(
        status,
        &format!("<Error><Code>{code}</Code><Message>no</Message></Error>"),
    )
}
