//! The archive of the local system: read-only files in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use raglan_core::audit_chain::DayRoot;

use super::{ArchiveError, Kept, closing};

pub(super) fn closings(
    folder: &Path,
    day: &str,
) -> Result<BTreeMap<u32, Option<DayRoot>>, ArchiveError> {
    let folder = folder.join(day);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(at(&folder, source)),
    };
    let mut roots = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|source| at(&folder, source))?;
        if let Some(number) = entry.file_name().to_str().and_then(closing) {
            let json = fs::read(entry.path()).map_err(|source| at(&entry.path(), source))?;
            roots.insert(number, serde_json::from_slice(&json).ok());
        }
    }
    Ok(roots)
}

/// The file appears whole or not at all, and takes no other's place.
pub(super) fn keep(folder: &Path, name: &str, json: &str) -> Result<Kept, ArchiveError> {
    let path = folder.join(name);
    let partial = path.with_extension("partial");
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // A left-over of an interrupted run.
        let _ = fs::remove_file(&partial);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&partial)?;
        file.write_all(json.as_bytes())?;
        file.sync_all()?;
        let linked = fs::hard_link(&partial, &path);
        fs::remove_file(&partial)?;
        linked
    };
    match write() {
        Ok(()) => Ok(Kept::New),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Kept::Taken),
        Err(source) => Err(at(&path, source)),
    }
}

fn at(path: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::Folder {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use raglan_core::clock::Timestamp;

    use super::*;
    use crate::archive::Archive;

    #[tokio::test]
    async fn a_root_is_written_once_and_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::Folder(folder.path().join("audit-roots"));
        let day = "2027-01-15";
        assert_eq!(archive.closings(day).await.unwrap(), BTreeMap::new());
        let at = Timestamp::from_epoch_seconds(1_800_000_000);
        let first = DayRoot::close(day, Vec::new(), at, at);
        assert_eq!(archive.keep(&first).await.unwrap(), Kept::New);
        let other = DayRoot::close(day, Vec::new(), at, at.plus_seconds(1));
        assert_eq!(archive.keep(&other).await.unwrap(), Kept::Taken);
        let second = other.numbered(2);
        assert_eq!(archive.keep(&second).await.unwrap(), Kept::New);
        let damaged = folder
            .path()
            .join("audit-roots")
            .join(day)
            .join("000003.json");
        fs::write(damaged, "{").unwrap();
        let expected = BTreeMap::from([(1, Some(first)), (2, Some(second)), (3, None)]);
        assert_eq!(archive.closings(day).await.unwrap(), expected);
    }
}
