//! A retrieval engine that keeps raglan's contract (`docs/backend-contract/openapi.yaml`), as small as
//! it gets: five documents in memory, found by the words that they share with the query.
//!
//! ```sh
//! cargo run -p raglan-engines --example backend_server [PORT]
//! ```
//!
//! With `BACKEND_TOKEN` set, requests have to carry it as a bearer token.

mod server;

use std::io::{self, Write as _};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let port = std::env::args().nth(1);
    let port: u16 = port.and_then(|text| text.parse().ok()).unwrap_or(8085);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(io::stdout(), "http://{}/v1", listener.local_addr()?)?;
    server::serve(listener, std::env::var("BACKEND_TOKEN").ok()).await
}
