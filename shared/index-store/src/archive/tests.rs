use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use tempfile::tempdir;

use super::*;
use crate::testing::write_index;

/// An archive with these entries, however odd they are.
fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut bytes = FrameEncoder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        bytes.write_all(header.as_bytes()).unwrap();
        bytes.write_all(content).unwrap();
        bytes
            .write_all(&vec![
                0;
                content.len().next_multiple_of(512) - content.len()
            ])
            .unwrap();
    }
    bytes.write_all(&[0; 1024]).unwrap();
    bytes.finish().unwrap()
}

#[test]
fn an_index_comes_out_as_it_was_packed_and_packs_to_the_same_bytes_again() {
    let (index, copy) = (tempdir().unwrap(), tempdir().unwrap());
    write_index(index.path(), "annual leave is 25 days");
    let mut packed = Vec::new();
    let size_bytes = pack(index.path(), &mut packed).unwrap();
    unpack(&packed[..], copy.path(), size_bytes).unwrap();
    let files = |folder: &Path| -> BTreeMap<_, _> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    fs::read(&path).unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(files(copy.path()), files(index.path()));
    let mut again = Vec::new();
    pack(copy.path(), &mut again).unwrap();
    assert_eq!(again, packed);
}

#[test]
fn no_entry_leads_out_of_the_folder() {
    for (name, kind) in [
        ("../evil", EntryType::Regular),
        ("/etc/evil", EntryType::Regular),
        ("a/b", EntryType::Regular),
        ("..", EntryType::Regular),
        (".hidden", EntryType::Regular),
        ("", EntryType::Regular),
        ("folder", EntryType::Directory),
        ("link", EntryType::Symlink),
        ("link", EntryType::Link),
        ("device", EntryType::Char),
        ("long", EntryType::GNULongName),
        ("extended", EntryType::XHeader),
    ] {
        let folder = tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let bytes = archive(&[(name, kind, b"../evil")]);
        let refused = unpack(&bytes[..], &inside, 1000);
        assert!(
            matches!(refused, Err(ArchiveError::ForeignEntry(_))),
            "{name} {kind:?}: {refused:?}"
        );
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 0, "{name}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn more_bytes_or_files_than_announced_are_refused_before_they_are_written() {
    let folder = tempdir().unwrap();
    let large = archive(&[
        ("a", EntryType::Regular, &[0; 600]),
        ("b", EntryType::Regular, &[0; 600]),
    ]);
    assert!(matches!(
        unpack(&large[..], folder.path(), 1000),
        Err(ArchiveError::TooLarge { limit_bytes: 1000 })
    ));
    assert!(!folder.path().join("b").exists());
    let names: Vec<String> = (0..=FILES_MAX).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), EntryType::Regular, &b""[..]))
        .collect();
    let folder = tempdir().unwrap();
    assert!(matches!(
        unpack(&archive(&many)[..], folder.path(), 1000),
        Err(ArchiveError::TooLarge { .. })
    ));
}

#[test]
fn a_name_that_comes_twice_is_an_error() {
    let folder = tempdir().unwrap();
    let bytes = archive(&[
        ("a", EntryType::Regular, b"1"),
        ("a", EntryType::Regular, b"2"),
    ]);
    assert!(matches!(
        unpack(&bytes[..], folder.path(), 1000),
        Err(ArchiveError::Io(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_damaged_archive_is_an_error_or_the_same_files(
        place in 0_usize..200, byte: u8, cut in 0_usize..200,
    ) {
        let mut bytes = archive(&[("a", EntryType::Regular, b"some text that is kept")]);
        let place = place % bytes.len();
        bytes[place] = byte;
        bytes.truncate(bytes.len() - cut % bytes.len());
        let folder = tempdir().unwrap();
        // Whatever comes of it, it ends, and nothing is written beside the folder or beyond the limit.
        let _ = unpack(&bytes[..], folder.path(), 100);
        let written: u64 = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        prop_assert!(written <= 100);
    }
}
