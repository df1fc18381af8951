//! Finding the key that an operator means.

use raglan_core::key::{PREFIX, PlainKey};
use raglan_core::key_record::KeyRecord;
use raglan_store::{KeyStore, ReadRecord};

use crate::failure::Failure;
use crate::language::text;
use crate::terminal::Console;

/// Longer input is no key.
const KEY_MAX_BYTES: u64 = 1024;

/// Reads the record of the key that `named` names: an identifier, a fingerprint, or `-` for a key on
/// standard input.
///
/// # Errors
/// [`Failure::NotFound`]; [`Failure::Usage`] when the key itself was written on the command line, or
/// when a fingerprint fits several keys.
pub async fn find(
    keys: &KeyStore,
    console: &mut Console,
    named: &str,
) -> anyhow::Result<ReadRecord> {
    let unknown = || Failure::NotFound(text!("there is no such key").to_owned());
    let hash = if named == "-" {
        let presented = presented_key(console)?;
        PlainKey::parse(&presented).map_err(|_| unknown())?.hash()
    } else if named.starts_with(PREFIX) && !named.contains('…') {
        return Err(Failure::Usage(
            text!(
                "that is a key itself, and your shell has kept it: revoke it; to name a key by \
                 itself, pass - and give it on standard input"
            )
            .to_owned(),
        )
        .into());
    } else {
        // The index lags behind the table by moments, and a fingerprint has none: keys are few enough
        // to look at all of them.
        let fitting = if let Some(record) = keys.find_by_id(named).await? {
            vec![record]
        } else {
            let fits = |key: &KeyRecord| key.key_id == named || key.fingerprint == named;
            let all = keys.list().await?;
            all.into_iter().filter(fits).collect()
        };
        match &fitting[..] {
            [] => return Err(unknown().into()),
            [record] => record.key_hash.clone(),
            _ => {
                let message = text!("{named} fits several keys: use the identifier", named);
                return Err(Failure::Usage(message).into());
            }
        }
    };
    Ok(keys.read(&hash).await?.ok_or_else(unknown)?)
}

fn presented_key(console: &mut Console) -> Result<String, Failure> {
    use std::io::{BufRead as _, Read as _};

    if console.is_input_terminal {
        console.note(text!("Paste the key and press Enter:"));
    }
    let mut line = String::new();
    let read = (&mut console.input)
        .take(KEY_MAX_BYTES)
        .read_line(&mut line);
    read.map_err(|_| Failure::Usage(text!("standard input is no text").to_owned()))?;
    Ok(line.trim().to_owned())
}
