//! PDF.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::plain::paragraphs;
use super::{Block, Content, ReadError};

/// The text of every page. Chinese, Japanese and Korean come out where the file says which
/// characters its glyphs stand for (`ToUnicode`), as word processors and browsers write it; a file
/// that leaves this to the reader's tables (`GBK-EUC-H` and the like) is reported as unreadable.
pub fn read(bytes: &[u8]) -> Result<Content, ReadError> {
    // The library panics on what it does not know; that is one broken file and no more. It sees
    // only `bytes`, so nothing can be left half-changed.
    let pages = catch_unwind(AssertUnwindSafe(|| {
        pdf_extract::extract_text_from_mem_by_pages(bytes)
    }))
    .map_err(|panic| ReadError::Pdf(panic_text(&*panic)))?
    .map_err(|error| ReadError::Pdf(error.to_string()))?;
    let blocks = (1..)
        .zip(pages)
        .flat_map(|(page, text)| {
            paragraphs(&text).into_iter().map(move |block| Block {
                page: Some(page),
                ..block
            })
        })
        .collect();
    Ok(Content {
        blocks,
        ..Content::default()
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the library gave up without saying why")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A PDF with a page per text, in a font whose glyph numbers are UTF-16 and whose `ToUnicode`
    /// says so, which is how word processors write Chinese.
    fn pdf(pages: &[&str]) -> Vec<u8> {
        let kids: Vec<String> = (0..pages.len())
            .map(|n| format!("{} 0 R", 7 + 2 * n))
            .collect();
        let mut objects =
            vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!("<< /Type /Pages /Count {} /Kids [{}] >>", pages.len(), kids.join(" ")),
            "<< /Type /Font /Subtype /Type0 /BaseFont /F /Encoding /Identity-H \
             /DescendantFonts [4 0 R] /ToUnicode 6 0 R >>"
                .to_owned(),
            "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /F /FontDescriptor 5 0 R /DW 1000 \
             /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
                .to_owned(),
            "<< /Type /FontDescriptor /FontName /F /Flags 4 /ItalicAngle 0 /Ascent 800 \
             /Descent -200 /CapHeight 700 /StemV 80 /FontBBox [0 0 1000 1000] >>"
                .to_owned(),
            stream(
                "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n\
                 1 begincodespacerange <0000> <ffff> endcodespacerange\n\
                 1 beginbfrange <0000> <ffff> <0000> endbfrange\nendcmap end end",
            ),
        ];
        for (n, text) in pages.iter().enumerate() {
            let glyphs: Vec<String> = text
                .encode_utf16()
                .map(|unit| format!("{unit:04x}"))
                .collect();
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {} 0 R \
                 /Resources << /Font << /F 3 0 R >> >> >>",
                8 + 2 * n
            ));
            objects.push(stream(&format!(
                "BT /F 12 Tf 72 700 Td <{}> Tj ET",
                glyphs.concat()
            )));
        }
        file(&objects)
    }

    /// The objects with the table that says where each of them begins.
    fn file(objects: &[String]) -> Vec<u8> {
        let mut file = b"%PDF-1.5\n".to_vec();
        let mut offsets = Vec::new();
        for (n, object) in (1..).zip(objects) {
            offsets.push(file.len());
            write!(file, "{n} 0 obj\n{object}\nendobj\n").unwrap();
        }
        let (table, size) = (file.len(), objects.len() + 1);
        write!(file, "xref\n0 {size}\n0000000000 65535 f \n").unwrap();
        for offset in offsets {
            writeln!(file, "{offset:010} 00000 n ").unwrap();
        }
        writeln!(
            file,
            "trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF"
        )
        .unwrap();
        file
    }

    fn stream(content: &str) -> String {
        format!(
            "<< /Length {} >>\nstream\n{content}\nendstream",
            content.len()
        )
    }

    #[test]
    fn chinese_is_read_with_its_page() {
        let content = read(&pdf(&["差旅报销制度", "Refund policy"])).unwrap();
        let pages_and_texts: Vec<(Option<u64>, &str)> = content
            .blocks
            .iter()
            .map(|block| (block.page, block.text.trim()))
            .collect();
        assert_eq!(
            pages_and_texts,
            [(Some(1), "差旅报销制度"), (Some(2), "Refund policy")]
        );
    }

    #[test]
    fn a_font_that_the_library_cannot_read_is_a_broken_file_and_no_panic() {
        let file = String::from_utf8(pdf(&["税"]))
            .unwrap()
            .replace("/Identity-H", "/GBK-EUC-H ");
        let error = read(file.as_bytes()).unwrap_err();
        assert!(
            matches!(&error, ReadError::Pdf(reason) if reason.contains("GBK-EUC-H")),
            "{error}"
        );
    }

    #[test]
    fn a_torn_file_is_a_broken_file() {
        let file = pdf(&["text"]);
        for end in [0, 5, file.len() / 2] {
            assert!(
                matches!(read(&file[..end]), Err(ReadError::Pdf(_))),
                "{end}"
            );
        }
    }
}
