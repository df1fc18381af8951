//! Which files of a folder are documents.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use raglan_core::clock::Timestamp;
use serde::{Deserialize, Serialize};

use crate::readers::Format;

/// A file that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it lies.
    pub path: PathBuf,
    /// Its path below the folder, with `/` between the parts.
    pub filename: String,
    /// How to read it.
    pub format: Format,
    /// When the file system says that it last changed.
    pub modified_at: Timestamp,
    /// Its size and times.
    pub stamp: Stamp,
}

/// What a file system says of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Its size.
    pub size_bytes: u64,
    /// When its content last changed, in nanoseconds since 1970. Programs can set it (`cp -p`).
    pub modified_ns: i64,
    /// When its content, name or rights last changed. No program can set it.
    pub changed_ns: i64,
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            size_bytes: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file that could not be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedFile {
    /// Its path below the folder, with `/` between the parts.
    pub filename: String,
    /// Why, for whoever builds the index.
    pub reason: String,
}

/// What a folder holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The documents, ordered by file name.
    pub files: Vec<SourceFile>,
    /// Number of files that were passed over: hidden, of an unknown kind, or links out of the folder.
    pub skipped: u64,
    /// Files and folders that could not be looked at.
    pub failed: Vec<FailedFile>,
}

/// Looks through `directory` and the folders below it.
///
/// Hidden files and folders are passed over. A symbolic link is followed when it leads to a file
/// inside of `directory`, and passed over otherwise: what lies outside was not given to be indexed.
///
/// # Errors
/// When `directory` itself cannot be listed.
pub fn scan(directory: &Path) -> io::Result<Source> {
    let root = fs::canonicalize(directory)?;
    let mut source = Source::default();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == root => return Err(error),
            Err(error) => {
                source.fail(below(&root, &folder), &error);
                continue;
            }
        };
        for entry in entries {
            match entry.and_then(|entry| look(&root, &entry)) {
                Ok(Found::Folder(path)) => folders.push(path),
                Ok(Found::File(file)) => source.files.push(file),
                Ok(Found::Other) => source.skipped += 1,
                Err(error) => source.fail(below(&root, &folder), &error),
            }
        }
    }
    source.files.sort_by(|a, b| a.filename.cmp(&b.filename));
    source.failed.sort_by(|a, b| a.filename.cmp(&b.filename));
    Ok(source)
}

impl Source {
    fn fail(&mut self, filename: String, error: &io::Error) {
        self.failed.push(FailedFile {
            filename,
            reason: error.to_string(),
        });
    }
}

enum Found {
    Folder(PathBuf),
    File(SourceFile),
    Other,
}

fn look(root: &Path, entry: &DirEntry) -> io::Result<Found> {
    let path = entry.path();
    if entry.file_name().to_string_lossy().starts_with('.') {
        return Ok(Found::Other);
    }
    let kind = entry.file_type()?;
    if kind.is_dir() {
        return Ok(Found::Folder(path));
    }
    if kind.is_symlink() {
        let inside = fs::canonicalize(&path).is_ok_and(|target| target.starts_with(root));
        if !inside || !fs::metadata(&path)?.is_file() {
            return Ok(Found::Other);
        }
    } else if !kind.is_file() {
        return Ok(Found::Other);
    }
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy());
    let Some(format) = extension.and_then(|extension| Format::from_extension(&extension)) else {
        return Ok(Found::Other);
    };
    let metadata = fs::metadata(&path)?;
    let filename = below(root, &path);
    let stamp = Stamp::of(&metadata);
    Ok(Found::File(SourceFile {
        path,
        filename,
        format,
        modified_at: Timestamp::from_epoch_ms(stamp.modified_ns.div_euclid(1_000_000)),
        stamp,
    }))
}

/// The path of `path` below `root`, with `/` between the parts.
fn below(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_in_order_and_everything_else_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("b/.git")).unwrap();
        for name in [
            "b/2.md",
            "a.PDF",
            "1.html",
            "photo.jpg",
            ".hidden.md",
            "b/.git/x.md",
        ] {
            fs::write(root.join(name), "x").unwrap();
        }
        let source = scan(root).unwrap();
        let names: Vec<&str> = source
            .files
            .iter()
            .map(|file| file.filename.as_str())
            .collect();
        assert_eq!(names, ["1.html", "a.PDF", "b/2.md"]);
        assert_eq!(source.skipped, 3);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_out_of_the_folder_is_not_followed_and_a_circle_of_links_ends() {
        use std::os::unix::fs::symlink;

        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret.md"), "x").unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.md"), "x").unwrap();
        symlink(
            outside.path().join("secret.md"),
            folder.path().join("secret.md"),
        )
        .unwrap();
        symlink(outside.path(), folder.path().join("outside")).unwrap();
        symlink(folder.path(), folder.path().join("circle")).unwrap();
        symlink("a.md", folder.path().join("b.md")).unwrap();
        symlink("nowhere.md", folder.path().join("broken.md")).unwrap();
        let source = scan(folder.path()).unwrap();
        let names: Vec<&str> = source
            .files
            .iter()
            .map(|file| file.filename.as_str())
            .collect();
        assert_eq!((names, source.skipped), (vec!["a.md", "b.md"], 4));
    }
}
