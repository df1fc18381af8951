//! The one moment at which a key is shown: on a terminal, or in a file that only its owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use raglan_core::key::PlainKey;
use serde::Serialize;

use super::arguments::HandoverArguments;
use crate::connect::{Recipe, first_recipes};
use crate::failure::Failure;
use crate::language::text;
use crate::terminal::Console;

/// Where a key goes. It is decided before the key exists, so that no key is made that nobody gets.
#[derive(Debug)]
pub enum Handover {
    /// To standard output.
    Output,
    /// To this new file.
    File {
        /// Its path.
        path: PathBuf,
        /// The open, empty file.
        file: File,
    },
}

impl Handover {
    /// Decides where, and makes the file.
    ///
    /// # Errors
    /// [`Failure::Usage`] when nobody looks at standard output; [`Failure::Refused`] when the file is
    /// there already.
    pub fn prepare(arguments: &HandoverArguments, console: &Console) -> anyhow::Result<Self> {
        let Some(path) = arguments.out.clone() else {
            if console.is_out_terminal || arguments.print {
                return Ok(Self::Output);
            }
            return Err(Failure::Usage(
                text!(
                    "standard output is no terminal: write the key to a file with --out FILE, or \
                     say --print"
                )
                .to_owned(),
            )
            .into());
        };
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match opened {
            Ok(file) => Ok(Self::File { path, file }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = text!(
                    "{path} is there already: choose a new file",
                    path = path.display()
                );
                Err(Failure::Refused(message).into())
            }
            Err(error) => {
                Err(error).with_context(|| text!("{path} cannot be made", path = path.display()))
            }
        }
    }

    /// Writes into the file what it is for; nothing for standard output.
    ///
    /// # Errors
    /// One line; the file is gone then.
    pub fn write_file(&mut self, secret: &Secret<'_>, json: bool) -> anyhow::Result<()> {
        let Self::File { path, file } = self else {
            return Ok(());
        };
        let content = if json {
            serde_json::to_string_pretty(secret)? + "\n"
        } else {
            secret.text()
        };
        let written = file
            .write_all(content.as_bytes())
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
        written.with_context(|| text!("{path} cannot be written", path = path.display()))
    }

    /// Takes the file away again, because the key in it was never made.
    pub fn abandon(self) {
        if let Self::File { path, .. } = self {
            let _ = fs::remove_file(path);
        }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        match self {
            Self::Output => None,
            Self::File { path, .. } => Some(path.display().to_string()),
        }
    }
}

/// A new key and what clients need to use it.
#[derive(Serialize)]
pub struct Secret<'a> {
    key: &'a str,
    endpoint: Option<&'a str>,
    clients: Vec<Client>,
    /// How to see the configurations of other clients.
    #[serde(skip)]
    other_clients: Option<String>,
}

#[derive(Serialize)]
struct Client {
    #[serde(rename = "client")]
    name: &'static str,
    place: &'static str,
    configuration: String,
}

impl<'a> Secret<'a> {
    /// For clients of that endpoint.
    #[must_use]
    pub fn of(key: &'a PlainKey, endpoint: Option<&'a str>) -> Self {
        let (recipes, other_clients) = endpoint.map(|url| first_recipes(url, key.reveal())).unzip();
        let client = |recipe: Recipe| Client {
            name: recipe.client,
            place: recipe.place,
            configuration: recipe.text,
        };
        Self {
            key: key.reveal(),
            endpoint,
            clients: recipes.into_iter().flatten().map(client).collect(),
            other_clients,
        }
    }

    /// The key on the first line, then each client's configuration.
    #[must_use]
    pub fn text(&self) -> String {
        use std::fmt::Write as _;

        let mut text = format!("{}\n", self.key);
        for client in &self.clients {
            let Client {
                name,
                place,
                configuration,
            } = client;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n── {name} ({place})\n{configuration}\n");
        }
        if let Some(sentence) = &self.other_clients {
            let _ = write!(text, "\n{sentence}\n");
        }
        text
    }
}
