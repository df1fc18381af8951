//! The guard on any text: it never panics, sanitising twice is sanitising once, spans lie in the
//! original, and no passage closes its envelope.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raglan_guard::{Guard, PassageInfo};

fuzz_target!(|text: &str| {
    let guard = Guard::default();
    let once = guard.sanitize(text);
    for finding in &once.findings {
        assert!(text.get(finding.span.clone()).is_some(), "{finding:?}");
    }
    if once.findings.is_empty() && !text.contains(['⟦', '⟧']) {
        assert_eq!(once.text, text);
    }
    assert_eq!(guard.sanitize(&once.text).text, once.text);
    let passage = PassageInfo {
        source: text,
        chunk_index: 0,
    };
    let wrapped = guard.isolate(&passage, text, "nonce").text;
    assert_eq!(wrapped.matches("</untrusted_data").count(), 1);
});
