//! DynamoDB and SQS inside this process, on loopback ports.
//!
//! DynamoDB keeps its tables in one `SQLite` file, or in memory. SQS keeps its messages in memory: who
//! stops the local system empties the queue first (see [`super::event_source`]).

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use raglan_aws::AwsClients;
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::service::{SqsHttpConfig, SqsHttpService};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::language::text;

/// The tables' file in the folder of the local system.
const DATABASE_FILE: &str = "dynamodb.sqlite";
/// Held locked while a local system uses the folder; the lock ends with the process.
const LOCK_FILE: &str = "raglan.lock";
/// How long requests that are under way may take when the emulators stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// How the emulators are started.
#[derive(Debug, Clone, Default)]
pub struct EmulatorOptions {
    /// The folder that keeps the tables, made if it is not there; `None` keeps them in memory.
    pub folder: Option<PathBuf>,
    /// DynamoDB's port on the loopback interface; 0 takes a free one.
    pub dynamodb_port: u16,
    /// SQS's port on the loopback interface; 0 takes a free one.
    pub sqs_port: u16,
}

/// The emulators cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// Somebody else listens on the port.
    #[error(
        "{}",
        text!(
            "port {port} for {service} is taken; choose another one or stop what uses it",
            port = .port,
            service = .service
        )
    )]
    PortTaken {
        /// `DynamoDB` or `SQS`.
        service: &'static str,
        /// The port.
        port: u16,
    },
    /// The port cannot be used for another reason.
    #[error(
        "{}",
        text!(
            "port {port} for {service} cannot be used: {source}",
            port = .port,
            service = .service,
            source = .source
        )
    )]
    Port {
        /// `DynamoDB` or `SQS`.
        service: &'static str,
        /// The port.
        port: u16,
        /// What the operating system says.
        source: io::Error,
    },
    /// The folder cannot be made or written to.
    #[error(
        "{}",
        text!(
            "the folder {folder} cannot be written to: {source}",
            folder = folder.display(),
            source = .source
        )
    )]
    FolderNotWritable {
        /// The folder.
        folder: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process works with the folder.
    #[error(
        "{}",
        text!(
            "the folder {folder} is in use by another local system; stop that one or choose \
             another folder",
            folder = folder.display()
        )
    )]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The tables' file is damaged or is something else.
    #[error(
        "{}",
        text!(
            "the tables in {file} cannot be opened ({cause}); move the file away to start with \
             empty tables",
            file = file.display(),
            cause = .cause
        )
    )]
    DatabaseUnreadable {
        /// The file.
        file: PathBuf,
        /// What `SQLite` says.
        cause: String,
    },
}

/// Running emulators. They stop when this is dropped; [`Emulators::shutdown`] also waits for it.
#[derive(Debug)]
pub struct Emulators {
    /// DynamoDB's endpoint.
    pub dynamodb_url: String,
    /// SQS's endpoint.
    pub sqs_url: String,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    /// Keeps the folder locked.
    _lock: Option<File>,
}

impl Emulators {
    /// Starts both. They answer as soon as this returns.
    ///
    /// # Errors
    /// [`EmulatorError`]; nothing runs then.
    pub async fn start(options: EmulatorOptions) -> Result<Self, EmulatorError> {
        let lock = options.folder.as_deref().map(lock_folder).transpose()?;
        let dynamodb = listen("DynamoDB", options.dynamodb_port).await?;
        let sqs = listen("SQS", options.sqs_port).await?;
        let database = open_database(options.folder.as_deref())?;

        let (stop, stopped) = watch::channel(false);
        let dynamodb_url = format!("http://{}", dynamodb.address);
        let sqs_url = format!("http://{}", sqs.address);
        let servers = vec![
            tokio::spawn(serve_dynamodb(dynamodb.listener, database, stopped.clone())),
            tokio::spawn(serve_sqs(sqs, stopped)),
        ];
        Ok(Self {
            dynamodb_url,
            sqs_url,
            stop,
            servers,
            _lock: lock,
        })
    }

    /// Clients that talk to these emulators.
    #[must_use]
    pub fn clients(&self) -> AwsClients {
        AwsClients::for_local_endpoints(&self.dynamodb_url, &self.sqs_url)
    }

    /// Stops both after the requests that are under way. What lies in a queue is gone.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        for mut server in self.servers {
            if tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut server)
                .await
                .is_err()
            {
                tracing::warn!("an emulator did not stop in time");
                server.abort();
            }
        }
    }
}

struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

async fn listen(service: &'static str, port: u16) -> Result<Bound, EmulatorError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => EmulatorError::PortTaken { service, port },
        _ => EmulatorError::Port {
            service,
            port,
            source,
        },
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Bound { listener, address })
}

fn lock_folder(folder: &Path) -> Result<File, EmulatorError> {
    let not_writable = |source| EmulatorError::FolderNotWritable {
        folder: folder.to_owned(),
        source,
    };
    fs::create_dir_all(folder).map_err(not_writable)?;
    let lock = File::create(folder.join(LOCK_FILE)).map_err(not_writable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(EmulatorError::FolderInUse {
            folder: folder.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(not_writable(source)),
    }
}

fn open_database(folder: Option<&Path>) -> Result<dynoxide::Database, EmulatorError> {
    let file = folder.map(|folder| folder.join(DATABASE_FILE));
    let opened = match &file {
        None => dynoxide::Database::memory().map_err(|error| error.to_string()),
        Some(file) => match file.to_str() {
            None => Err(text!("its path is not UTF-8").to_owned()),
            Some(path) => dynoxide::Database::new(path).map_err(|error| error.to_string()),
        },
    };
    opened.map_err(|cause| EmulatorError::DatabaseUnreadable {
        file: file.unwrap_or_else(|| PathBuf::from(":memory:")),
        cause,
    })
}

async fn serve_dynamodb(
    listener: TcpListener,
    database: dynoxide::Database,
    stopped: watch::Receiver<bool>,
) {
    let served =
        dynoxide::server::serve_with_shutdown(listener, database, until_stopped(stopped)).await;
    if let Err(error) = served {
        tracing::error!(error, "the DynamoDB emulator ended");
    }
}

async fn serve_sqs(bound: Bound, stopped: watch::Receiver<bool>) {
    let provider = Arc::new(RustackSqs::new(SqsConfig {
        host: bound.address.ip().to_string(),
        port: bound.address.port(),
        ..SqsConfig::default()
    }));
    let handler = Arc::new(RustackSqsHandler::new(Arc::clone(&provider)));
    let service = SqsHttpService::new(handler, SqsHttpConfig::default());
    let mut connections = JoinSet::new();
    let stopped = until_stopped(stopped);
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            // Ended connections are taken out, so that a long run does not collect them.
            Some(_) = connections.join_next() => {}
            accepted = bound.listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service.clone());
                    connections.spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a connection to the SQS emulator broke off");
                        }
                    });
                }
                Err(error) => tracing::warn!(%error, "the SQS emulator refused a connection"),
            },
        }
    }
    provider.shutdown_all().await;
    connections.shutdown().await;
}

/// Ends when the emulators are told to stop or are dropped.
async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // The error means that the sender is gone, which is the same.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(folder: &Path) -> EmulatorOptions {
        EmulatorOptions {
            folder: Some(folder.to_owned()),
            ..EmulatorOptions::default()
        }
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let occupied = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = occupied.local_addr().unwrap().port();
        let options = EmulatorOptions {
            sqs_port: port,
            ..EmulatorOptions::default()
        };
        let error = Emulators::start(options).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("port {port} for SQS is taken")),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_folder_belongs_to_one_local_system_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = Emulators::start(in_folder(folder.path())).await.unwrap();
        let error = Emulators::start(in_folder(folder.path()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, EmulatorError::FolderInUse { .. }),
            "{error}"
        );
        first.shutdown().await;
        Emulators::start(in_folder(folder.path()))
            .await
            .unwrap()
            .shutdown()
            .await;
    }

    #[tokio::test]
    async fn a_damaged_file_of_tables_is_left_as_it_is_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(DATABASE_FILE);
        let damaged = "this is no database ".repeat(100);
        fs::write(&file, &damaged).unwrap();
        let error = Emulators::start(in_folder(folder.path()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, EmulatorError::DatabaseUnreadable { .. }),
            "{error}"
        );
        assert!(error.to_string().contains(DATABASE_FILE));
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Emulators::start(in_folder(&file.join("below")))
            .await
            .unwrap_err();
        assert!(
            matches!(error, EmulatorError::FolderNotWritable { .. }),
            "{error}"
        );
    }
}
