//! CSV as RFC 4180 describes it, for readers that are spreadsheets.

/// One row with its line end. A text that a spreadsheet would take for a formula gets an apostrophe in
/// front: what callers wrote must not run on the machine of whoever opens the file.
pub(super) fn row<const CELLS: usize>(cells: [String; CELLS]) -> String {
    let cells = cells.map(|cell| {
        let cell = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
            format!("'{cell}")
        } else {
            cell
        };
        if cell.contains([',', '"', '\r', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    });
    cells.join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let cells = ["plain", "a,b", "say \"hi\"", "two\nlines", "", "知识"];
        assert_eq!(
            row(cells.map(ToOwned::to_owned)),
            "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",,知识\r\n"
        );
    }

    #[test]
    fn no_cell_is_a_formula() {
        for text in ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"] {
            let shown = row([text.to_owned()]);
            let cell = shown.trim_end_matches("\r\n").trim_matches('"');
            assert!(cell.starts_with('\''), "{shown}");
        }
    }
}
