//! How clients are told about an endpoint: the one source of every configuration that is printed.

use serde_json::{Value, json};

/// The name under which clients list the server.
const NAME: &str = "raglan";

/// A client and what its user has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The client.
    pub client: &'static str,
    /// Where the text belongs: a file, or the terminal.
    pub place: &'static str,
    /// What to paste.
    pub text: String,
}

/// Ready-to-paste configurations for an endpoint and a key.
#[must_use]
pub fn recipes(url: &str, key: &str) -> Vec<Recipe> {
    let bearer = format!("Bearer {key}");
    vec![
        Recipe {
            client: "Claude Code",
            place: "terminal",
            text: format!(
                "claude mcp add --transport http {NAME} {url} --header \"Authorization: {bearer}\""
            ),
        },
        Recipe {
            client: "Claude Desktop",
            place: "claude_desktop_config.json",
            // Claude Desktop starts local programs only; mcp-remote is the bridge. The header has no
            // space, because on some systems arguments are split at spaces.
            text: pretty(&json!({ "mcpServers": { NAME: {
                "command": "npx",
                "args": ["-y", "mcp-remote", url, "--transport", "http-only",
                    "--header", "Authorization:${RAGLAN_AUTHORIZATION}"],
                "env": { "RAGLAN_AUTHORIZATION": bearer }
            } } })),
        },
        Recipe {
            client: "Cursor",
            place: ".cursor/mcp.json",
            text: pretty(&json!({ "mcpServers": { NAME: {
                "url": url, "headers": { "Authorization": bearer }
            } } })),
        },
        Recipe {
            client: "VS Code",
            place: ".vscode/mcp.json",
            text: pretty(&json!({ "servers": { NAME: {
                "type": "http", "url": url, "headers": { "Authorization": bearer }
            } } })),
        },
        Recipe {
            client: "curl",
            place: "terminal",
            text: curl(url, key),
        },
    ]
}

fn curl(url: &str, key: &str) -> String {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "list_knowledge_bases", "arguments": {} }
    });
    format!(
        "curl -s {url} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{call}'"
    )
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_names_the_endpoint_and_the_key() {
        for recipe in recipes("http://127.0.0.1:8420/mcp", "rgl_example") {
            assert!(
                recipe.text.contains("http://127.0.0.1:8420/mcp"),
                "{}",
                recipe.client
            );
            assert!(recipe.text.contains("rgl_example"), "{}", recipe.client);
        }
    }

    #[test]
    fn what_belongs_into_a_json_file_is_json() {
        let recipes = recipes("http://127.0.0.1:1/mcp", "rgl_example");
        let files: Vec<_> = recipes.iter().filter(|r| r.place != "terminal").collect();
        assert_eq!(files.len(), 3);
        for recipe in files {
            assert!(
                serde_json::from_str::<Value>(&recipe.text).is_ok(),
                "{}",
                recipe.client
            );
        }
    }
}
