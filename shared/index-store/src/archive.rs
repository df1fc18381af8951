//! The archive of an index: its files in a POSIX tar file, compressed with LZ4 (frame format).
//!
//! LZ4 is there already, below the index itself, whose texts are compressed with it; what is left to
//! compress is little, and unpacking must be cheap on a small function.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use raglan_rag::embedded::layout;
use raglan_rag::embedded::manifest::{Manifest, ManifestError};
use tar::{Archive, Builder, EntryType, Header};

/// More files than an index can have.
const FILES_MAX: usize = 256;

/// Why an archive cannot be written or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The index that should be packed is not usable.
    #[error(transparent)]
    Index(#[from] ManifestError),
    /// Files cannot be read or written, or the archive breaks off.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// An entry that no index has: a folder, a link, a name with a path.
    #[error("it has the entry {0:?}, which no index has")]
    ForeignEntry(String),
    /// Its files are larger, or more, than its pointer says.
    #[error("it unpacks to more than {limit_bytes} bytes")]
    TooLarge {
        /// What was expected.
        limit_bytes: u64,
    },
}

/// Packs the index in `directory`. Equal files give equal bytes. Returns the size of the files.
///
/// # Errors
/// [`ArchiveError`]
pub fn pack(directory: &Path, to: impl Write) -> Result<u64, ArchiveError> {
    let manifest = Manifest::read(directory)?;
    let mut archive = Builder::new(FrameEncoder::new(to));
    let mut unpacked_bytes = 0;
    let names = manifest.files.keys().map(String::as_str);
    for name in names.chain([layout::MANIFEST]) {
        let mut file = File::open(directory.join(name))?;
        let size_bytes = file.metadata()?.len();
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(size_bytes);
        header.set_mode(0o644);
        header.set_mtime(0);
        archive.append_data(&mut header, name, &mut file)?;
        unpacked_bytes += size_bytes;
    }
    let mut rest = archive.into_inner()?.finish().map_err(io::Error::from)?;
    rest.flush()?;
    Ok(unpacked_bytes)
}

/// Unpacks into `directory`, an empty folder, what [`pack`] has written, and nothing else: files in
/// the folder itself, of at most `limit_bytes` together.
///
/// # Errors
/// [`ArchiveError`]; the folder may hold some of the files then.
pub fn unpack(from: impl Read, directory: &Path, limit_bytes: u64) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(FrameDecoder::new(from));
    let mut left_bytes = limit_bytes;
    // Raw: entries of extended formats, which could rename the next one, come as what they are.
    for (count, entry) in archive.entries()?.raw(true).enumerate() {
        let mut entry = entry?;
        let name = file_name(&entry.path_bytes());
        let name = match name {
            Ok(name) if entry.header().entry_type() == EntryType::Regular => name,
            Ok(name) | Err(name) => return Err(ArchiveError::ForeignEntry(name)),
        };
        let size_bytes = entry.size();
        if size_bytes > left_bytes || count >= FILES_MAX {
            return Err(ArchiveError::TooLarge { limit_bytes });
        }
        left_bytes -= size_bytes;
        // `create_new`: a name that comes twice is an error.
        let mut file = File::create_new(directory.join(name))?;
        if io::copy(&mut entry, &mut file)? != size_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(())
}

/// The name if it is one of a file in the folder itself, and not hidden; otherwise the name as an error.
fn file_name(bytes: &[u8]) -> Result<String, String> {
    let of_names = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let name = String::from_utf8_lossy(bytes).into_owned();
    let valid = !bytes.is_empty() && bytes.iter().all(of_names) && !name.starts_with('.');
    if valid { Ok(name) } else { Err(name) }
}

#[cfg(test)]
mod tests;
