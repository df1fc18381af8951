use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const MOST: usize = 1000;

type Told = Result<(u16, Vec<u8>, bool), String>;

/// What is made of these pieces, each of which comes after the one before was read. The connection ends
/// behind them.
async fn told(pieces: &[&[u8]]) -> Told {
    let (ours, mut theirs) = tokio::io::duplex(7);
    let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let server = async move {
        for piece in pieces {
            if theirs.write_all(&piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let client = async {
        let mut connection = Connection::new(Box::new(Answering(ours)));
        let request = Request::get("http://h/").body(Bytes::new()).unwrap();
        connection.exchange(&request, MOST).await
    };
    let (exchanged, ()) = tokio::join!(client, server);
    let Exchanged {
        response,
        is_reusable,
    } = exchanged.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().to_vec(), is_reusable))
}

/// A stream whose other side is not interested in the request.
struct Answering(tokio::io::DuplexStream);

impl AsyncRead for Answering {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Answering {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of the things that can be told"
)]
fn ok(body: &str, is_reusable: bool) -> Told {
    Ok((200, body.into(), is_reusable))
}

fn failed(error: &ExchangeError) -> Told {
    Err(error.to_string())
}

#[tokio::test]
async fn an_answer_ends_where_its_head_says() {
    let rows: [(&str, Told); 13] = [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            ok("hello", true),
        ),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", ok("", true)),
        (
            "HTTP/1.1 200\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi",
            ok("hi", true),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            ok("hello", true),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
            ok("0123456789", true),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", ok("to the end", false)),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            ok("hi", false),
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: te, Close\r\ncontent-length: 2\r\n\r\nhi",
            ok("hi", false),
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            ok("hi", true),
        ),
        (
            "HTTP/1.1 204 No Content\r\n\r\n",
            Ok((204, Vec::new(), true)),
        ),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 90\r\n\r\n",
            Ok((304, Vec::new(), true)),
        ),
        // Somebody says more than the answer.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi there",
            ok("hi", false),
        ),
        (
            "HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy",
            Ok((503, b"busy".to_vec(), true)),
        ),
    ];
    for (answer, expected) in rows {
        assert_eq!(told(&[answer.as_bytes()]).await, expected, "{answer:?}");
        let bytes: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
        let (slow, expected) = (told(&bytes).await, expected.map(|(s, body, _)| (s, body)));
        assert_eq!(
            slow.map(|(status, body, _)| (status, body)),
            expected,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_unclear_cut_or_too_large_is_an_error() {
    let unclear = || failed(&ExchangeError::Malformed("its length is unclear"));
    let ended = || failed(&ExchangeError::Ended);
    let rows: [(String, Told); 16] = [
        (String::new(), ended()),
        ("HTTP/1.1 200 OK\r\ncontent-le".to_owned(), ended()),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell".to_owned(),
            ended(),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n".to_owned(),
            ended(),
        ),
        (
            "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
            failed(&ExchangeError::Malformed("its head cannot be read")),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
            unclear(),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n".to_owned(),
            unclear(),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_owned(),
            unclear(),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi".to_owned(),
            unclear(),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi".to_owned(),
            unclear(),
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\nhi".to_owned(),
            unclear(),
        ),
        (
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", MOST + 1),
            failed(&ExchangeError::TooLarge),
        ),
        (
            format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(MOST + 1)),
            failed(&ExchangeError::TooLarge),
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
                MOST + 1
            ),
            failed(&ExchangeError::TooLarge),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhello".to_owned(),
            failed(&ExchangeError::Malformed("a chunk has another size")),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nx".to_owned(),
            failed(&ExchangeError::Malformed("a chunk has no size")),
        ),
    ];
    for (answer, expected) in rows {
        assert_eq!(told(&[answer.as_bytes()]).await, expected, "{answer:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(HEAD_MAX_BYTES));
    let expected = failed(&ExchangeError::Malformed("its head is too long"));
    assert_eq!(told(&[endless.as_bytes()]).await, expected);
}

#[tokio::test]
async fn a_request_has_its_target_host_headers_and_the_length_of_its_body() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let mut connection = Connection::new(Box::new(ours));
    let request = Request::post("https://host.example:8443/a/b?c=d")
        .header("x-amz-target", "T.GetItem")
        .header("content-length", "999")
        .header("transfer-encoding", "chunked")
        .body(Bytes::from_static(b"{}"))
        .unwrap();
    connection.send(&request).await.unwrap();
    let plain = Request::get("http://h").body(Bytes::new()).unwrap();
    connection.send(&plain).await.unwrap();
    let empty = Request::post("http://h")
        .header("host", "other")
        .body(Bytes::new())
        .unwrap();
    connection.send(&empty).await.unwrap();
    drop(connection);
    let mut sent = String::new();
    theirs.read_to_string(&mut sent).await.unwrap();
    let expected = "POST /a/b?c=d HTTP/1.1\r\nhost: host.example:8443\r\nx-amz-target: T.GetItem\r\n\
                    content-length: 2\r\n\r\n{}GET / HTTP/1.1\r\nhost: h\r\n\r\n\
                    POST / HTTP/1.1\r\nhost: other\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn several_exchanges_follow_each_other_and_a_large_body_arrives_whole() {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let large = vec![b'x'; SENT_TOGETHER_MAX_BYTES + 1];
    let sent = large.clone();
    let server = tokio::spawn(async move {
        for length in [3, sent.len()] {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(theirs.read_u8().await.unwrap());
            }
            let mut body = vec![0; length];
            theirs.read_exact(&mut body).await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            theirs.write_all(answer.as_bytes()).await.unwrap();
            theirs.write_all(&body).await.unwrap();
        }
    });
    let mut connection = Connection::new(Box::new(ours));
    for body in [b"abc".to_vec(), large] {
        assert!(connection.is_quiet().await);
        let request = Request::post("http://h/").body(Bytes::from(body.clone()));
        let exchanged = connection.exchange(&request.unwrap(), usize::MAX).await;
        let exchanged = exchanged.unwrap();
        assert!(exchanged.is_reusable);
        assert_eq!(exchanged.response.body()[..], body);
    }
    server.await.unwrap();
    assert!(!connection.is_quiet().await, "the other side has closed it");
}

#[tokio::test]
async fn a_connection_on_which_somebody_speaks_unasked_is_not_quiet() {
    let (ours, mut theirs) = tokio::io::duplex(64);
    let mut connection = Connection::new(Box::new(ours));
    assert!(connection.is_quiet().await);
    theirs.write_all(b"HTTP/1.1 408 ").await.unwrap();
    assert!(!connection.is_quiet().await);
}

/// Runs a future that needs no clock and no network.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bodies_arrive_as_they_were_sent_however_they_are_cut(
        body in prop::collection::vec(any::<u8>(), 0..200),
        chunks in prop::option::of(prop::collection::vec(1_usize..40, 0..12)),
        cuts in prop::collection::vec(1_usize..60, 1..20),
    ) {
        let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
        if let Some(sizes) = chunks {
            answer.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            let mut rest = &body[..];
            for size in sizes.into_iter().chain(std::iter::repeat(64)) {
                let (chunk, left) = rest.split_at(size.min(rest.len()));
                answer.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                answer.extend_from_slice(chunk);
                answer.extend_from_slice(b"\r\n");
                if chunk.is_empty() {
                    break;
                }
                rest = left;
            }
        } else {
            answer.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
            answer.extend_from_slice(&body);
        }
        let mut pieces = Vec::new();
        let mut rest = &answer[..];
        for cut in cuts.into_iter().cycle() {
            let (piece, left) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = left;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(run(told(&pieces)), Ok((200, body, true)));
    }

    #[test]
    fn bytes_from_anybody_are_an_answer_or_an_error(
        head in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]),
        rest in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n:0f".to_vec())], 0..80),
    ) {
        let bytes = [head.as_bytes(), &rest].concat();
        if let Ok((status, body, _)) = run(told(&[&bytes])) {
            prop_assert!(status >= 200 && body.len() <= bytes.len());
        }
    }
}
