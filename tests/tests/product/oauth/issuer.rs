//! An issuer of access tokens on a loopback port.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use raglan_core::clock::Clock as _;
use raglan_core::key::KeyHash;
use raglan_core::key_record::KeyRecord;
use raglan_mcp::oauth::OauthConfig;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::World;

/// The endpoint that the tokens are for.
pub const RESOURCE: &str = "https://kb.example/mcp";
const TOKEN_LIFETIME_SECONDS: i64 = 3600;

/// An `OpenID` provider, as far as a resource server sees one.
pub struct Issuer {
    pub url: String,
    pub pair: EcdsaKeyPair,
    /// The ids under which it publishes its key.
    pub key_ids: Arc<Mutex<Vec<&'static str>>>,
    /// The paths that it was asked for.
    pub asked: Arc<Mutex<Vec<String>>>,
    pub is_up: Arc<AtomicBool>,
}

impl Issuer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let pair = new_pair();
        let key_ids = Arc::new(Mutex::new(vec!["k1"]));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let is_up = Arc::new(AtomicBool::new(true));
        let metadata = json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") });
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        });
        tokio::spawn({
            let (key_ids, asked, is_up) = (key_ids.clone(), asked.clone(), is_up.clone());
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    if !is_up.load(Ordering::SeqCst) {
                        asked.lock().unwrap().push("(away)".to_owned());
                        continue;
                    }
                    let ids = key_ids.lock().unwrap().clone();
                    let keys = ids.into_iter().map(|key_id| {
                        let mut key = key.clone();
                        key["kid"] = key_id.into();
                        key
                    });
                    let keys = json!({ "keys": keys.collect::<Vec<_>>() });
                    let path = answer(stream, &metadata, &keys).await;
                    asked.lock().unwrap().push(path);
                }
            }
        });
        Self {
            url,
            pair,
            key_ids,
            asked,
            is_up,
        }
    }

    /// How often it was asked for its keys.
    pub fn keys_asked(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|path| *path == "/jwks").count()
    }

    /// What a token for `subject` with this scope claims.
    pub fn claims(&self, world: &World, subject: &str, scope: &str) -> Value {
        json!({
            "iss": self.url, "sub": subject, "aud": RESOURCE, "scope": scope,
            "exp": world.clock.now().epoch_seconds() + TOKEN_LIFETIME_SECONDS,
        })
    }

    pub fn token(&self, world: &World, subject: &str, scope: &str) -> String {
        let claims = self.claims(world, subject, scope);
        sign(&self.pair, &json!({ "alg": "ES256", "kid": "k1" }), &claims)
    }

    /// A system that accepts this issuer's tokens.
    pub async fn world(&self) -> World {
        let issuer = self.url.clone();
        World::configured(|config| {
            config.oauth = Some(OauthConfig {
                issuer,
                resource: RESOURCE.to_owned(),
            });
        })
        .await
    }

    /// Stores what a subject may do: everything, as `change` has it.
    pub async fn grant(&self, world: &World, subject: &str, change: impl FnOnce(&mut KeyRecord)) {
        let hash = KeyHash::of_subject(&self.url, subject);
        let key_id = format!("key-{subject}");
        world
            .key(&key_id, |record| {
                record.key_hash = hash;
                change(record);
            })
            .await;
    }
}

/// Answers one request and returns its path.
async fn answer(mut stream: TcpStream, metadata: &Value, keys: &Value) -> String {
    let mut lines = BufReader::new(&mut stream).lines();
    let first = lines.next_line().await.unwrap().unwrap_or_default();
    while lines
        .next_line()
        .await
        .unwrap()
        .is_some_and(|line| !line.is_empty())
    {}
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = match path.as_str() {
        "/.well-known/openid-configuration" => ("200 OK", metadata.to_string()),
        "/jwks" => ("200 OK", keys.to_string()),
        _ => ("404 Not Found", "{}".to_owned()),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    path
}

pub fn new_pair() -> EcdsaKeyPair {
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

pub fn sign(pair: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
