//! Protected resource metadata (RFC 9728).

use serde_json::{Value, json};

use super::{OauthConfig, SCOPE};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The document that names the authorization server.
pub fn document(config: &OauthConfig) -> Value {
    json!({
        "resource": config.resource,
        "authorization_servers": [config.issuer],
        "scopes_supported": [SCOPE],
        "bearer_methods_supported": ["header"],
        "resource_name": "raglan"
    })
}

/// Clients look at the path of the endpoint first and at the root after that (RFC 9728 §3.1).
pub fn is_path(path: &str, endpoint: &str) -> bool {
    path.strip_prefix(WELL_KNOWN)
        .is_some_and(|rest| rest.is_empty() || rest == endpoint)
}

/// The URL is absolute: clients are known to ignore a relative one.
pub fn challenge(config: &OauthConfig, insufficient_scope: bool) -> String {
    let (origin, path) = split_origin(&config.resource);
    let error = if insufficient_scope {
        "error=\"insufficient_scope\", "
    } else {
        ""
    };
    format!(
        "Bearer realm=\"mcp\", {error}resource_metadata=\"{origin}{WELL_KNOWN}{path}\", scope=\"{SCOPE}\""
    )
}

/// `https://host/mcp` → `https://host` and `/mcp`.
pub fn split_origin(url: &str) -> (&str, &str) {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    match url[after_scheme..].find('/') {
        Some(at) => url.split_at(after_scheme + at),
        None => (url, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> OauthConfig {
        OauthConfig {
            issuer: "https://id.example".to_owned(),
            resource: "https://kb.example/mcp".to_owned(),
        }
    }

    #[test]
    fn the_challenge_leads_to_the_metadata_by_an_absolute_url() {
        assert_eq!(
            challenge(&config(), false),
            "Bearer realm=\"mcp\", resource_metadata=\"https://kb.example/.well-known/oauth-protected-resource/mcp\", scope=\"raglan\""
        );
        assert!(challenge(&config(), true).contains("error=\"insufficient_scope\""));
    }

    #[test]
    fn the_metadata_is_found_at_both_well_known_places_and_nowhere_else() {
        for path in [WELL_KNOWN, "/.well-known/oauth-protected-resource/mcp"] {
            assert!(is_path(path, "/mcp"), "{path}");
        }
        for path in [
            "/.well-known/oauth-protected-resource/other",
            "/.well-known/openid-configuration",
        ] {
            assert!(!is_path(path, "/mcp"), "{path}");
        }
    }
}
