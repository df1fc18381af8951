//! One exchange at a time over a connection that nobody else works on: HTTP/1.1 as a client.
//!
//! A connection of hyper is a task of its own, which passes messages to the one who asks. Here the one who waits
//! for the answer reads it, and what a request needs are two buffers. Everything that is not as RFC 9112 says
//! is an error, and ends the connection.

use bytes::{BufMut as _, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Status line and headers of an answer.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
/// The line before a chunk: its size, and extensions that nobody uses.
const CHUNK_LINE_MAX_BYTES: usize = 1024;
/// Headers behind the last chunk, which are read over.
const TRAILERS_MAX_BYTES: usize = 16 * 1024;
/// Bodies up to this size are sent together with the head.
const SENT_TOGETHER_MAX_BYTES: usize = 64 * 1024;
/// Buffers that have grown beyond this are not kept.
const BUFFER_KEPT_MAX_BYTES: usize = 64 * 1024;
const READ_AT_LEAST_BYTES: usize = 8 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] std::io::Error),
    /// The other side closed it first.
    #[error("the connection ended before the answer did")]
    Ended,
    /// What came is no answer.
    #[error("the answer is no HTTP: {0}")]
    Malformed(&'static str),
    /// The body is larger than it may be.
    #[error("the answer is too large")]
    TooLarge,
}

/// A stream of bytes, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection between two exchanges.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// What has been read and not yet been used: nothing, between exchanges.
    received: Vec<u8>,
    written: Vec<u8>,
}

/// An answer, and whether the connection can be used again.
pub struct Exchanged {
    /// The answer.
    pub response: Response<Bytes>,
    /// The other side keeps the connection open, and nothing is left on it.
    pub is_reusable: bool,
}

impl Connection {
    /// A connection over a stream that is open.
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            received: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Whether it is still open, and nobody has said anything unasked.
    pub async fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        // Polled once: whatever is there already, is there at once.
        tokio::select! {
            biased;
            _ = self.stream.read(&mut byte) => false,
            () = std::future::ready(()) => true,
        }
    }

    /// Sends a request with an absolute URI, and reads the whole answer.
    ///
    /// # Errors
    /// [`ExchangeError`]; the connection cannot be used any more then, nor when this is dropped before its end.
    pub async fn exchange(
        &mut self,
        request: &Request<Bytes>,
        response_max_bytes: usize,
    ) -> Result<Exchanged, ExchangeError> {
        self.send(request).await?;
        let head = loop {
            let head = self.read_head().await?;
            // 1xx announces another answer (RFC 9110 §15.2).
            if !head.status.is_informational() {
                break head;
            }
        };
        let framing = head.framing(request.method())?;
        let body = match framing {
            Framing::Length(length) => self.read_length(length, response_max_bytes).await?,
            Framing::Chunked => self.read_chunks(response_max_bytes).await?,
            Framing::UntilClosed => self.read_to_end(response_max_bytes).await?,
        };
        let is_reusable =
            head.keeps_open() && framing != Framing::UntilClosed && self.received.is_empty();
        for buffer in [&mut self.received, &mut self.written] {
            if buffer.capacity() > BUFFER_KEPT_MAX_BYTES {
                *buffer = Vec::new();
            }
        }
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        Ok(Exchanged {
            response,
            is_reusable,
        })
    }

    async fn send(&mut self, request: &Request<Bytes>) -> Result<(), ExchangeError> {
        write_head(request, &mut self.written);
        let body = request.body();
        let together = body.len() <= SENT_TOGETHER_MAX_BYTES;
        if together {
            self.written.extend_from_slice(body);
        }
        self.stream.write_all(&self.written).await?;
        if !together {
            self.stream.write_all(body).await?;
        }
        Ok(self.stream.flush().await?)
    }

    /// Waits for more bytes.
    async fn receive(&mut self) -> Result<(), ExchangeError> {
        self.received.reserve(READ_AT_LEAST_BYTES);
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(ExchangeError::Ended),
            _ => Ok(()),
        }
    }

    async fn read_head(&mut self) -> Result<Head, ExchangeError> {
        loop {
            if let Some((head, length)) = Head::parse(&self.received)? {
                self.received.drain(..length);
                return Ok(head);
            }
            if self.received.len() > HEAD_MAX_BYTES {
                return Err(ExchangeError::Malformed("its head is too long"));
            }
            self.receive().await?;
        }
    }

    async fn read_length(&mut self, length: u64, most: usize) -> Result<Bytes, ExchangeError> {
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= most);
        let length = length.ok_or(ExchangeError::TooLarge)?;
        if self.received.len() >= length {
            let body = Bytes::copy_from_slice(&self.received[..length]);
            self.received.drain(..length);
            return Ok(body);
        }
        let mut body = std::mem::take(&mut self.received);
        body.reserve_exact(length - body.len());
        while body.len() < length {
            let missing = length - body.len();
            let mut rest = (&mut body).limit(missing);
            if self.stream.read_buf(&mut rest).await? == 0 {
                return Err(ExchangeError::Ended);
            }
        }
        Ok(body.into())
    }

    async fn read_to_end(&mut self, most: usize) -> Result<Bytes, ExchangeError> {
        loop {
            if self.received.len() > most {
                return Err(ExchangeError::TooLarge);
            }
            match self.receive().await {
                Ok(()) => {}
                Err(ExchangeError::Ended) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(std::mem::take(&mut self.received).into())
    }

    /// RFC 9112 §7.1
    async fn read_chunks(&mut self, most: usize) -> Result<Bytes, ExchangeError> {
        let mut body = Vec::new();
        loop {
            let size = self.read_chunk_size().await?;
            let size = usize::try_from(size).map_err(|_| ExchangeError::TooLarge)?;
            if size == 0 {
                self.read_trailers().await?;
                return Ok(body.into());
            }
            if size > most - body.len() {
                return Err(ExchangeError::TooLarge);
            }
            while self.received.len() < size + 2 {
                self.receive().await?;
            }
            let (chunk, rest) = self.received.split_at(size);
            if !rest.starts_with(b"\r\n") {
                return Err(ExchangeError::Malformed("a chunk has another size"));
            }
            body.extend_from_slice(chunk);
            self.received.drain(..size + 2);
        }
    }

    async fn read_chunk_size(&mut self) -> Result<u64, ExchangeError> {
        let malformed = ExchangeError::Malformed("a chunk has no size");
        loop {
            match httparse::parse_chunk_size(&self.received) {
                Ok(httparse::Status::Complete((length, size))) => {
                    self.received.drain(..length);
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) if self.received.len() <= CHUNK_LINE_MAX_BYTES => {}
                _ => return Err(malformed),
            }
            self.receive().await?;
        }
    }

    async fn read_trailers(&mut self) -> Result<(), ExchangeError> {
        loop {
            let at_once = self.received.starts_with(b"\r\n").then_some(2);
            let later = || memchr::memmem::find(&self.received, b"\r\n\r\n").map(|at| at + 4);
            if let Some(length) = at_once.or_else(later) {
                self.received.drain(..length);
                return Ok(());
            }
            if self.received.len() > TRAILERS_MAX_BYTES {
                return Err(ExchangeError::Malformed("its trailers are too long"));
            }
            self.receive().await?;
        }
    }
}

/// The beginning of a request, up to the empty line.
fn write_head(request: &Request<Bytes>, out: &mut Vec<u8>) {
    out.clear();
    let uri = request.uri();
    out.extend_from_slice(request.method().as_str().as_bytes());
    out.push(b' ');
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let mut line = |name: &HeaderName, value: &[u8]| {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    };
    if let (false, Some(authority)) = (request.headers().contains_key(HOST), uri.authority()) {
        line(&HOST, authority.as_str().as_bytes());
    }
    for (name, value) in request.headers() {
        // The body's length is what it is.
        if name != CONTENT_LENGTH && name != TRANSFER_ENCODING {
            line(name, value.as_bytes());
        }
    }
    let length = request.body().len();
    if length > 0 || !matches!(*request.method(), Method::GET | Method::HEAD) {
        line(&CONTENT_LENGTH, length.to_string().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClosed,
}

#[derive(Debug)]
struct Head {
    status: StatusCode,
    version: Version,
    headers: HeaderMap,
}

impl Head {
    /// The head and its length, if all of it is there.
    fn parse(received: &[u8]) -> Result<Option<(Self, usize)>, ExchangeError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let malformed = ExchangeError::Malformed;
        let length = match parsed.parse(received) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(malformed("its head cannot be read")),
        };
        let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
        let mut head = Self {
            status: status.ok_or(malformed("its status is none"))?,
            version: match parsed.version {
                Some(1) => Version::HTTP_11,
                _ => Version::HTTP_10,
            },
            headers: HeaderMap::with_capacity(parsed.headers.len()),
        };
        for header in parsed.headers {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let value = HeaderValue::from_bytes(header.value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(malformed("a header cannot be read"));
            };
            head.headers.append(name, value);
        }
        Ok(Some((head, length)))
    }

    /// RFC 9112 §6.3
    fn framing(&self, method: &Method) -> Result<Framing, ExchangeError> {
        if *method == Method::HEAD
            || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&self.status)
        {
            return Ok(Framing::Length(0));
        }
        let mut lengths = self.headers.get_all(CONTENT_LENGTH).iter();
        let length = lengths.next();
        let mut codings = self.headers.get_all(TRANSFER_ENCODING).iter();
        if let Some(coding) = codings.next() {
            // Two framings at once are how an answer is smuggled past somebody.
            return if coding.as_bytes().eq_ignore_ascii_case(b"chunked")
                && codings.next().is_none()
                && length.is_none()
            {
                Ok(Framing::Chunked)
            } else {
                Err(ExchangeError::Malformed("its length is unclear"))
            };
        }
        let Some(length) = length else {
            return Ok(Framing::UntilClosed);
        };
        let digits = length.to_str().unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse() {
            Ok(length) if is_number && lengths.all(|other| other == digits) => {
                Ok(Framing::Length(length))
            }
            _ => Err(ExchangeError::Malformed("its length is unclear")),
        }
    }

    /// RFC 9112 §9.3
    fn keeps_open(&self) -> bool {
        let mut options = self.headers.get_all(CONNECTION).iter();
        self.version == Version::HTTP_11
            && !options.any(|options| {
                let options = options.to_str().unwrap_or("close").split(',');
                options
                    .map(str::trim)
                    .any(|option| option.eq_ignore_ascii_case("close"))
            })
    }
}

#[cfg(test)]
mod tests;
