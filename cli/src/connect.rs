//! How clients are told about an endpoint: the one source of every configuration that is printed, and of
//! those in docs/clients.md. `raglan connect` prints them by name.

use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::ConnectArguments;
use crate::language::text;
use crate::terminal::say;

/// The name under which clients list the server.
const NAME: &str = "raglan";
/// What stands where the key belongs: `raglan connect` never sees one.
pub const KEY_PLACEHOLDER: &str = "YOUR_KEY";
/// The client names that stand for all recipes.
const ALL: &str = "all";
/// Clients whose recipes are shown unasked.
const SHOWN_UNASKED: [&str; 4] = ["claude-code", "cursor", "vs-code", "curl"];

/// A client and what its user has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The client's name on the command line.
    pub name: &'static str,
    /// The client.
    pub client: &'static str,
    /// Where the text belongs: a file, or the terminal.
    pub place: &'static str,
    /// What to paste.
    pub text: String,
}

impl Recipe {
    /// The recipe under a heading, for a terminal or a text file.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("── {} ({})\n{}\n", self.client, self.place, self.text)
    }
}

/// Ready-to-paste configurations for an endpoint and a key, one for every client.
#[must_use]
pub fn recipes(url: &str, key: &str) -> Vec<Recipe> {
    let bearer = format!("Bearer {key}");
    let recipe = |name, client, place, text| Recipe {
        name,
        client,
        place,
        text,
    };
    let servers = |entry: Value| pretty(&json!({ "mcpServers": { NAME: entry } }));
    vec![
        recipe(
            "claude-code",
            "Claude Code",
            "terminal",
            format!(
                "claude mcp add --transport http {NAME} {url} --header \"Authorization: {bearer}\""
            ),
        ),
        recipe(
            "claude-desktop",
            "Claude Desktop",
            "claude_desktop_config.json",
            // Claude Desktop starts local programs only; mcp-remote is the bridge. The header has no
            // space, because on some systems arguments are split at spaces.
            servers(json!({
                "command": "npx",
                "args": ["-y", "mcp-remote", url, "--transport", "http-only",
                    "--header", "Authorization:${RAGLAN_AUTHORIZATION}"],
                "env": { "RAGLAN_AUTHORIZATION": bearer }
            })),
        ),
        recipe(
            "cursor",
            "Cursor",
            ".cursor/mcp.json",
            servers(json!({ "url": url, "headers": { "Authorization": bearer } })),
        ),
        recipe(
            "vs-code",
            "VS Code",
            ".vscode/mcp.json",
            pretty(&json!({ "servers": { NAME: {
                "type": "http", "url": url, "headers": { "Authorization": bearer }
            } } })),
        ),
        recipe(
            "windsurf",
            "Windsurf",
            "~/.codeium/windsurf/mcp_config.json",
            servers(json!({ "serverUrl": url, "headers": { "Authorization": bearer } })),
        ),
        recipe(
            "codex",
            "Codex",
            "~/.codex/config.toml",
            format!(
                "[mcp_servers.{NAME}]\nurl = \"{url}\"\nhttp_headers = {{ \"Authorization\" = \"{bearer}\" }}"
            ),
        ),
        recipe(
            "gemini-cli",
            "Gemini CLI",
            "~/.gemini/settings.json",
            // `url` would be the older transport, HTTP+SSE.
            servers(json!({ "httpUrl": url, "headers": { "Authorization": bearer } })),
        ),
        recipe(
            "mcp-remote",
            "mcp-remote",
            "terminal",
            format!(
                "npx -y mcp-remote {url} --transport http-only --header \"Authorization:{bearer}\""
            ),
        ),
        recipe(
            "langchain",
            "LangChain MCP adapters",
            "Python",
            langchain(url, &bearer),
        ),
        recipe(
            "openai-agents",
            "OpenAI Agents SDK",
            "Python",
            openai_agents(url, &bearer),
        ),
        recipe("curl", "curl", "terminal", curl(url, key)),
    ]
}

/// The recipes that are shown unasked, and the sentence that says how to see the others.
#[must_use]
pub fn first_recipes(url: &str, key: &str) -> (Vec<Recipe>, String) {
    let (first, others): (Vec<_>, Vec<_>) = recipes(url, key)
        .into_iter()
        .partition(|recipe| SHOWN_UNASKED.contains(&recipe.name));
    let names: Vec<_> = others.iter().map(|recipe| recipe.name).collect();
    let names = names.join(", ");
    (
        first,
        text!(
            "Other clients: raglan connect NAME --url {url}, where NAME is {names} or {all}.",
            url,
            names,
            all = ALL
        ),
    )
}

/// Runs `raglan connect`.
///
/// # Errors
/// One line: there is no recipe of this name.
pub fn run(arguments: &ConnectArguments) -> anyhow::Result<Outcome> {
    let recipes = recipes(&arguments.url, KEY_PLACEHOLDER);
    let Some(wanted) = arguments.client.as_deref() else {
        for recipe in recipes {
            say(format_args!("{:<16}{}", recipe.name, recipe.client));
        }
        return Ok(Outcome::Done);
    };
    let is_wanted = |recipe: &&Recipe| wanted == ALL || wanted == recipe.name;
    let shown: Vec<_> = recipes.iter().filter(is_wanted).collect();
    if shown.is_empty() {
        let names: Vec<_> = recipes.iter().map(|recipe| recipe.name).collect();
        let names = names.join(", ");
        anyhow::bail!(text!(
            "there is no recipe for {wanted}; there are {names} and {all}",
            wanted = format_args!("{:?}", wanted),
            names,
            all = ALL
        ));
    }
    for recipe in shown {
        say(recipe.shown());
    }
    Ok(Outcome::Done)
}

fn langchain(url: &str, bearer: &str) -> String {
    format!(
        r#"# pip install langchain-mcp-adapters
from langchain_mcp_adapters.client import MultiServerMCPClient

client = MultiServerMCPClient({{
    "{NAME}": {{
        "transport": "streamable_http",
        "url": "{url}",
        "headers": {{"Authorization": "{bearer}"}},
    }}
}})
tools = await client.get_tools()"#
    )
}

fn openai_agents(url: &str, bearer: &str) -> String {
    format!(
        r#"# pip install openai-agents
from agents.mcp import MCPServerStreamableHttp

server = MCPServerStreamableHttp(
    name="{NAME}",
    params={{"url": "{url}", "headers": {{"Authorization": "{bearer}"}}}},
)
async with server:
    tools = await server.list_tools()"#
    )
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
    use std::path::Path;

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
        let files: Vec<_> = recipes
            .iter()
            .filter(|recipe| Path::new(recipe.place).extension() == Some("json".as_ref()))
            .collect();
        assert_eq!(files.len(), 5);
        for recipe in files {
            assert!(
                serde_json::from_str::<Value>(&recipe.text).is_ok(),
                "{}",
                recipe.client
            );
        }
    }

    #[test]
    fn what_belongs_into_a_toml_file_is_toml() {
        let recipes = recipes("http://127.0.0.1:1/mcp", "rgl_example");
        let codex = recipes
            .iter()
            .find(|recipe| recipe.name == "codex")
            .unwrap();
        let table: toml::Table = toml::from_str(&codex.text).unwrap();
        let server = &table["mcp_servers"][NAME];
        assert_eq!(server["url"].as_str(), Some("http://127.0.0.1:1/mcp"));
        let header = server["http_headers"]["Authorization"].as_str();
        assert_eq!(header, Some("Bearer rgl_example"));
    }

    #[test]
    fn a_recipe_is_shown_unasked_or_named() {
        let (first, others) = first_recipes("http://127.0.0.1:1/mcp", "rgl_example");
        assert_eq!(first.len(), SHOWN_UNASKED.len());
        for recipe in recipes("http://127.0.0.1:1/mcp", "rgl_example") {
            assert!(
                first.contains(&recipe) || others.contains(recipe.name),
                "{}",
                recipe.name
            );
        }
    }

    #[test]
    fn the_document_has_every_recipe_word_for_word() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/clients.md");
        let document = std::fs::read_to_string(path).unwrap();
        for recipe in recipes("https://YOUR-ENDPOINT/mcp", KEY_PLACEHOLDER) {
            let heading = format!("### {} ({})\n", recipe.client, recipe.place);
            let block = format!("\n{}\n```\n", recipe.text);
            let section = document.split(&heading).nth(1).unwrap_or_default();
            let section = section.split("\n### ").next().unwrap_or_default();
            assert!(
                section.contains(&block),
                "{}:\n{}",
                recipe.client,
                recipe.text
            );
        }
    }
}
