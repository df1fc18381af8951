//! Which test keeps which of the project's field cases D01 to D30 (what users of other servers have
//! suffered from). A case without a test here is not kept.

use std::path::Path;

/// Case, what it is about, the tests that keep it: file and name.
type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

// A row is a line.
#[rustfmt::skip]
const CASES: [Case; 30] = [
    ("D01", "a denied tool is listed or hinted at", &[("field_cases", "d01_a_denied_tool_is_neither_listed_nor_hinted_at")]),
    ("D02", "a foreign knowledge base can be told from an absent one", &[("field_cases", "d02_a_forbidden_knowledge_base_is_an_absent_one_is_audited_and_is_not_asked")]),
    ("D03", "identifiers must be guessed", &[("field_cases", "d03_without_an_id_the_whole_scope_is_searched_and_the_list_names_it")]),
    ("D04", "one identifier as text", &[("field_cases", "d04_one_id_as_text_is_a_list_of_one_and_a_misnamed_field_is_named")]),
    ("D05", "scopes that are stored and not enforced", &[("field_cases", "d05_a_scoped_key_is_refused_on_every_method_and_path_that_is_not_its_own"), ("permission", "a_key_with_one_tool_may_call_that_tool_and_no_other")]),
    ("D06", "right scopes are refused", &[("field_cases", "d06_d07_right_scopes_are_served_and_wrong_ones_are_never_an_http_403")]),
    ("D07", "a 403 opens a login dialog", &[("field_cases", "d06_d07_right_scopes_are_served_and_wrong_ones_are_never_an_http_403")]),
    ("D08", "a dead key is told apart or still works", &[("permission", "every_presented_text_that_is_no_good_key_gets_the_same_401"), ("permission", "a_key_that_is_revoked_is_dead_on_the_next_request"), ("permission", "a_key_dies_at_the_moment_of_its_expiry_and_a_replaced_one_at_the_end_of_its_grace")]),
    ("D09", "failure looks like nothing found", &[("faults", "failure_and_nothing_found_are_different_answers")]),
    ("D10", "an engine's error text reaches the model", &[("faults", "failure_and_nothing_found_are_different_answers")]),
    ("D11", "a slow engine", &[("faults", "an_engine_that_hangs_is_a_tool_error_before_the_platform_ends_the_call")]),
    ("D12", "more is asked for than the engine gives", &[("field_cases", "d12_no_engine_is_asked_for_more_than_it_gives")]),
    ("D13", "a setting that the engine refuses", &[("federation", "what_an_engine_did_otherwise_is_told_and_does_not_make_a_result_partial")]),
    ("D14", "an answer over the client's budget", &[("field_cases", "d14_forty_long_passages_are_cut_to_the_limit_and_the_answer_says_so")]),
    ("D15", "an answer over the platform's limit", &[("field_cases", "d15_an_engine_that_returns_ten_megabytes_gets_a_bounded_answer"), ("field_cases", "d15_metadata_without_bounds_does_not_break_the_answer_either")]),
    ("D16", "invisible instructions", &[("bad_input", "engine_text_with_hidden_characters_comes_out_clean_in_text_and_metadata")]),
    ("D17", "a passage ends its own envelope", &[("field_cases", "d17_a_passage_cannot_forge_the_end_of_its_envelope")]),
    ("D18", "two owners of CORS", &[("answers", "an_allowed_origin_may_read_every_answer"), ("field_list", "the_function_alone_answers_for_cors")]),
    ("D19", "the key cannot come in Authorization", &[("oauth", "d19_the_key_may_come_in_x_api_key_where_a_front_takes_the_authorization_header")]),
    ("D20", "only loopback hosts are served", &[("field_cases", "d20_any_host_name_is_served")]),
    ("D21", "a panic ends the environment", &[("faults", "a_panic_is_an_internal_error_of_one_call_and_the_process_lives_on")]),
    ("D22", "the second call on a warm environment fails", &[("field_cases", "d22_a_thousand_calls_on_one_environment_are_all_answered")]),
    ("D23", "the caller is missing from the trail", &[("audit_trail", "a_row_says_who_asked_what_from_where_and_what_came_of_it")]),
    ("D24", "secrets in logs", &[("field_cases", "d24_no_question_is_logged_by_the_function_itself"), ("secrets", "no_key_is_in_any_byte_of_logs_answers_queue_trail_or_files")]),
    ("D25", "repeated headers", &[("field_cases", "d25_repeated_headers_that_a_front_joined_are_refused")]),
    ("D26", "garbage in the shape of a notification", &[("field_cases", "d26_a_notification_with_an_object_as_id_is_no_notification")]),
    ("D27", "a client that falls back to SSE", &[("field_cases", "d27_a_get_is_told_to_post")]),
    ("D28", "stale OAuth state beside a static header", &[("oauth", "switched_off_there_is_no_trace_of_oauth"), ("field_list", "d28_the_document_says_how_to_get_rid_of_stale_oauth_state")]),
    ("D29", "relative metadata addresses", &[("oauth", "the_challenge_leads_by_an_absolute_url_to_metadata_that_names_this_endpoint")]),
    ("D30", "a bridge that knows the handshake only", &[("protocol", "d30_clients_of_both_eras_take_turns_on_one_endpoint")]),
];

fn project() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_test_that_keeps_a_field_case_exists() {
    for (case, about, tests) in CASES {
        assert!(!tests.is_empty(), "{case}");
        for (file, test) in tests {
            let path = project().join(format!("tests/tests/product/{file}.rs"));
            let source = std::fs::read_to_string(&path).unwrap();
            assert!(
                source.contains(&format!("fn {test}()")),
                "{case}, {about}: {test}"
            );
        }
    }
}

#[test]
fn the_function_alone_answers_for_cors() {
    let template = std::fs::read_to_string(project().join("template.yaml")).unwrap();
    let sets_cors = |line: &&str| line.trim_start().starts_with("Cors:");
    assert_eq!(template.lines().find(sets_cors), None);
}

#[test]
fn d28_the_document_says_how_to_get_rid_of_stale_oauth_state() {
    let document = std::fs::read_to_string(project().join("docs/clients.md")).unwrap();
    assert!(document.contains("`mcpOAuth`"));
}
