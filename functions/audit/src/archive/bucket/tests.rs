use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use aws_config::BehaviorVersion;
use aws_sdk_s3::config::{Credentials, Region, SharedCredentialsProvider};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use raglan_core::clock::Timestamp;

use super::*;
use crate::archive::{Archive, ArchiveError};

const DAY: &str = "2027-01-15";
/// Entries of one page of a list.
const PAGE: usize = 2;

/// Key and content; a delete marker has none.
type Version = (String, Option<Bytes>);

/// A bucket with versions, as far as the archive uses one, from the oldest version to the newest. The
/// number of a version is its identifier.
#[derive(Clone, Default)]
struct FakeS3(Arc<Mutex<Vec<Version>>>);

impl FakeS3 {
    async fn start(&self) -> Archive {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let this = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let this = this.clone();
                let service = service_fn(move |request| {
                    let this = this.clone();
                    async move { Ok::<_, Infallible>(this.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        let credentials = Credentials::new("test", "test", None, None, "test");
        let account = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(url)
            .build();
        Archive::Bucket(Bucket::new(&account, "roots"))
    }

    /// What somebody with the right to write can do: a version without asking whether there is one.
    fn overwrite(&self, key: &str, content: Option<&str>) {
        let content = content.map(|content| Bytes::from(content.to_owned()));
        self.0.lock().unwrap().push((key.to_owned(), content));
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let parameter = |name: &str| {
            let found = query
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            found.map(|value| value.replace("%2F", "/"))
        };
        let path = parts.uri.path();
        let Some(key) = path
            .strip_prefix("/roots")
            .map(|key| key.trim_start_matches('/'))
        else {
            return error(StatusCode::NOT_FOUND, "NoSuchBucket");
        };
        let mut versions = self.0.lock().unwrap();
        if parts.method == Method::PUT {
            assert_eq!(parts.headers["if-none-match"], "*");
            let newest = versions.iter().rev().find(|(of, _)| of == key);
            if newest.is_some_and(|(_, content)| content.is_some()) {
                return error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
            versions.push((key.to_owned(), Some(body)));
            return Response::new(Full::default());
        }
        if let Some(version) = parameter("versionId") {
            let (of, content) = &versions[version.parse::<usize>().unwrap()];
            assert_eq!(of, key);
            return Response::new(Full::new(content.clone().unwrap()));
        }
        let after = parameter("key-marker").zip(parameter("version-id-marker"));
        Response::new(Full::from(page(
            &versions,
            &parameter("prefix").unwrap(),
            after,
        )))
    }
}

/// Keys in their order, and the versions of each from the newest to the oldest.
fn page(versions: &[Version], prefix: &str, after: Option<(String, String)>) -> String {
    let mut listed: Vec<_> = versions.iter().enumerate().collect();
    listed.retain(|(_, (key, _))| key.starts_with(prefix));
    listed.sort_by_key(|(n, (key, _))| (key.clone(), std::cmp::Reverse(*n)));
    if let Some((key, version)) = after {
        let last = listed
            .iter()
            .position(|(n, (of, _))| *of == key && n.to_string() == version);
        listed.drain(..=last.unwrap());
    }
    let is_truncated = listed.len() > PAGE;
    listed.truncate(PAGE);
    let mut xml = format!(
        "<ListVersionsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <IsTruncated>{is_truncated}</IsTruncated>"
    );
    for (n, (key, content)) in &listed {
        let kind = if content.is_some() {
            "Version"
        } else {
            "DeleteMarker"
        };
        write!(
            xml,
            "<{kind}><Key>{key}</Key><VersionId>{n}</VersionId></{kind}>"
        )
        .unwrap();
    }
    if let Some((n, (key, _))) = listed.last().filter(|_| is_truncated) {
        write!(xml, "<NextKeyMarker>{key}</NextKeyMarker>").unwrap();
        write!(xml, "<NextVersionIdMarker>{n}</NextVersionIdMarker>").unwrap();
    }
    xml + "</ListVersionsResult>"
}

fn error(status: StatusCode, code: &str) -> Response<Full<Bytes>> {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

fn root(closing: u32) -> DayRoot {
    let at = Timestamp::from_epoch_seconds(1_800_000_000);
    DayRoot::close(DAY, Vec::new(), at, at.plus_seconds(i64::from(closing))).numbered(closing)
}

#[tokio::test]
async fn roots_are_read_as_they_were_written() {
    let archive = FakeS3::default().start().await;
    assert_eq!(archive.closings(DAY).await.unwrap(), BTreeMap::new());
    for closing in 1..=5 {
        assert_eq!(archive.keep(&root(closing)).await.unwrap(), Kept::New);
    }
    let expected = (1..=5)
        .map(|closing| (closing, Some(root(closing))))
        .collect();
    assert_eq!(archive.closings(DAY).await.unwrap(), expected);
    assert_eq!(
        archive.closings("2027-01-14").await.unwrap(),
        BTreeMap::new()
    );
}

#[tokio::test]
async fn a_root_that_is_there_is_not_written_over() {
    let archive = FakeS3::default().start().await;
    archive.keep(&root(1)).await.unwrap();
    let other = DayRoot {
        event_count: 9,
        ..root(1)
    };
    assert_eq!(archive.keep(&other).await.unwrap(), Kept::Taken);
    assert_eq!(archive.closings(DAY).await.unwrap()[&1], Some(root(1)));
}

#[tokio::test]
async fn the_first_version_counts_whatever_was_put_above_it() {
    let s3 = FakeS3::default();
    let archive = s3.start().await;
    let key = format!("{DAY}/000001.json");
    archive.keep(&root(1)).await.unwrap();
    for forged in 2..6 {
        s3.overwrite(&key, Some(&serde_json::to_string(&root(forged)).unwrap()));
    }
    s3.overwrite(&key, None);
    s3.overwrite(&format!("{DAY}/readme.txt"), Some("nothing"));
    let expected = BTreeMap::from([(1, Some(root(1)))]);
    assert_eq!(archive.closings(DAY).await.unwrap(), expected);
}

#[tokio::test]
async fn what_is_no_root_is_found_and_not_believed() {
    let s3 = FakeS3::default();
    let archive = s3.start().await;
    s3.overwrite(&format!("{DAY}/000001.json"), Some("{}"));
    let expected = BTreeMap::from([(1, None)]);
    assert_eq!(archive.closings(DAY).await.unwrap(), expected);
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_an_error_and_no_empty_archive() {
    let Archive::Bucket(bucket) = FakeS3::default().start().await else {
        panic!("no bucket");
    };
    let other = Bucket {
        name: "other".to_owned(),
        ..bucket
    };
    let archive = Archive::Bucket(other);
    let error = archive.closings(DAY).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Bucket(_)), "{error}");
    assert!(archive.keep(&root(1)).await.is_err());
}
