//! The rules of the backend contract (`docs/backend-contract/openapi.yaml`), checked on a server.
//!
//! ```sh
//! cargo test -p raglan-engines --test backend_contract -- --url https://rag.example/v1 \
//!     --knowledge-base vs_123 --query "annual leave" --token-env RAG_TOKEN
//! ```
//!
//! Without `--url` the server is the example of this crate, so that the rules are checked themselves.

#[path = "../../examples/backend_server/server.rs"]
mod server;

mod rules;
mod subject;

use std::io::{self, Write as _};
use std::process::ExitCode;

use rules::{RULES, Verdict};
use subject::Subject;

const USAGE: &str = "\
Checks the rules of raglan's backend contract on a server.

  --url URL            where it is, with the version: https://rag.example/v1
  --knowledge-base ID  a vector store with documents; the first of the list otherwise
  --query TEXT         a query that finds some of them; \"leave\" otherwise
  --token-env NAME     the environment variable that holds the bearer token
  NAME                 only the rules with this in their sentence
";

/// What the command line says.
#[derive(Debug, Default)]
struct Options {
    url: Option<String>,
    knowledge_base: Option<String>,
    query: Option<String>,
    token_env: Option<String>,
    only: Option<String>,
}

/// Reads the command line. What only other tests' programs know (`--nocapture`) is left alone.
fn options(arguments: impl IntoIterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let field = match argument.as_str() {
            "--url" => &mut options.url,
            "--knowledge-base" => &mut options.knowledge_base,
            "--query" => &mut options.query,
            "--token-env" => &mut options.token_env,
            "--help" => return Err(USAGE.to_owned()),
            other => {
                if !other.starts_with('-') {
                    options.only = Some(argument);
                }
                continue;
            }
        };
        let value = arguments.next();
        *field = Some(value.ok_or_else(|| format!("{argument} needs a value\n\n{USAGE}"))?);
    }
    Ok(options)
}

async fn subject(options: &Options) -> Result<Subject, String> {
    let token = match &options.token_env {
        Some(name) => {
            let token = std::env::var(name).map_err(|_| format!("{name} is not set"))?;
            Some((name.clone(), token))
        }
        None => None,
    };
    let query = options.query.clone().unwrap_or_else(|| "leave".to_owned());
    let url = if let Some(url) = &options.url {
        url.clone()
    } else {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        tokio::spawn(server::serve(listener, None));
        format!("http://{address}/v1")
    };
    Subject::new(&url, token, query, options.knowledge_base.clone()).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut out = io::stdout();
    let prepared = match options(std::env::args().skip(1)) {
        Ok(options) => subject(&options)
            .await
            .map(|subject| (subject, options.only)),
        Err(message) => Err(message),
    };
    let (subject, only) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            return ExitCode::from(2);
        }
    };
    let _ = writeln!(out, "\n{} of {}", subject.store, subject.url);
    let (mut kept, mut broken) = (0, 0);
    for rule in RULES {
        if only
            .as_ref()
            .is_some_and(|only| !rule.sentence.contains(only))
        {
            continue;
        }
        let line = match (rule.check)(&subject).await {
            Ok(Verdict::Kept) => {
                kept += 1;
                format!("kept      {}", rule.sentence)
            }
            Ok(Verdict::NotOffered(why)) => format!("optional  {} ({why})", rule.sentence),
            Err(seen) => {
                broken += 1;
                format!("BROKEN    {}\n          {seen}", rule.sentence)
            }
        };
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(out, "\n{kept} rules kept, {broken} broken\n");
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
