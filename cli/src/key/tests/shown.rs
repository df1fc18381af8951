//! What operators read.

use crate::Outcome;
use crate::testing::World;

#[tokio::test]
async fn a_key_is_found_by_its_fingerprint() {
    let world = World::start().await;
    let (id, _) = world.key(&["--tools", "all"]).await;
    let fingerprint = world
        .run(&["key", "show", &id, "--json"])
        .await
        .text("/fingerprint");
    let shown = world.run(&["key", "show", &fingerprint, "--json"]).await;
    assert_eq!(shown.text("/key_id"), id);
    for unknown in ["key-000000000000", "rgl_aaa…zzz", ""] {
        let ran = world.run(&["key", "show", unknown]).await;
        assert_eq!(ran.outcome, Outcome::NotFound, "{unknown}");
    }
}

#[tokio::test]
async fn usage_tells_the_calls_that_were_let_through() {
    let world = World::start().await;
    let (used, key) = world.key(&["--tools", "all", "--kb", "all"]).await;
    let (unused, _) = world.key(&["--tools", "all"]).await;
    for _ in 0..2 {
        assert_eq!(world.status(&key).await, 200);
        world.clock.advance_seconds(30);
    }
    insta::assert_snapshot!(world.run(&["key", "usage"]).await.out, @r"
    KEY               LAST USED (UTC)   CALLS  ON THAT DAY             NAME
    key-a83d7e35de18  2027-01-15 08:00  2      list_knowledge_bases 2  test
    key-ac06f33e6310  never             0                              test
    ");
    insta::assert_snapshot!(world.run(&["key", "usage", &used, "--json"]).await.out, @r#"
    {
      "key_id": "key-a83d7e35de18",
      "name": "test",
      "owner": null,
      "last_used_at": "2027-01-15T08:00:30.000Z",
      "call_count": 2,
      "last_day": "2027-01-15",
      "calls_of_last_day": {
        "list_knowledge_bases": 2
      }
    }
    "#);
    insta::assert_snapshot!(world.run(&["key", "usage", &unused]).await.out, @r"
    key              key-ac06f33e6310
    name             test
    last used        never
    ");
    world.run(&["key", "revoke", &used, "--yes"]).await;
    let count = async |line: &[&str]| {
        let items = world.run(line).await.json();
        items["items"].as_array().unwrap().len()
    };
    assert_eq!(count(&["key", "usage", "--json"]).await, 1);
    assert_eq!(count(&["key", "usage", "--all", "--json"]).await, 2);
}

#[tokio::test]
async fn a_new_key_is_shown_with_everything_that_a_client_needs() {
    let world = World::start().await;
    world
        .run(&["kb", "add", "handbook", "--description", "d"])
        .await;
    let line = [
        "key",
        "create",
        "support bot",
        "--tools",
        "retrieve,ask",
        "--kb",
        "handbook,wiki",
        "--expires",
        "90d",
        "--rate-limit",
        "60/10",
        "--quota",
        "ask=100",
        "--url",
        "https://mcp.example/mcp",
    ];
    let ran = world.run_on_terminal(&line, "").await;
    let key = ran
        .out
        .lines()
        .find(|line| line.starts_with("rgl_"))
        .unwrap();
    insta::assert_snapshot!(ran.out.replace(key, "<key>"), @r#"
    key              key-a8574c6fae6d
    name             support bot
    fingerprint      rgl_fys…CEP
    state            active
    owner            none (system key)
    tools            ask,retrieve
    knowledge bases  handbook,wiki
    created          2027-01-15 08:00 UTC
    expires          2027-04-15 08:00 UTC
    rate limit       60 requests a minute, 10 at once
    daily quota      100 calls of ask

    The key, shown this once:

    <key>

    ── Claude Code (terminal)
    claude mcp add --transport http raglan https://mcp.example/mcp --header "Authorization: Bearer <key>"

    ── Cursor (.cursor/mcp.json)
    {
      "mcpServers": {
        "raglan": {
          "url": "https://mcp.example/mcp",
          "headers": {
            "Authorization": "Bearer <key>"
          }
        }
      }
    }

    ── VS Code (.vscode/mcp.json)
    {
      "servers": {
        "raglan": {
          "type": "http",
          "url": "https://mcp.example/mcp",
          "headers": {
            "Authorization": "Bearer <key>"
          }
        }
      }
    }

    ── curl (terminal)
    curl -s https://mcp.example/mcp -H 'Authorization: Bearer <key>' -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_knowledge_bases","arguments":{}}}'

    Other clients: raglan connect NAME --url https://mcp.example/mcp, where NAME is claude-desktop, windsurf, codex, gemini-cli, mcp-remote, langchain, openai-agents or all.
    "#);
    insta::assert_snapshot!(ran.err, @"There is no knowledge base wiki at the moment.");
}

#[tokio::test]
async fn lists_and_records_look_like_this() {
    let world = World::start().await;
    let (id, _) = world
        .key(&["--tools", "all", "--kb", "all", "--owner", "anna"])
        .await;
    world
        .run(&["key", "create", "ci", "--print", "--expires", "2027-06-01"])
        .await;
    world.run(&["key", "rotate", &id, "--yes", "--print"]).await;
    world.clock.advance_seconds(60);
    insta::assert_snapshot!(world.run(&["key", "list"]).await.out, @r"
    KEY               FINGERPRINT  STATE     OWNER     TOOLS  KNOWLEDGE BASES  ENDS (UTC)        NAME
    key-189deb96b2a4  rgl_8MB…4gA  active    anna      all    all of anna      never             test
    key-a83d7e35de18  rgl_7U2…hJf  in grace  anna      all    all of anna      2027-01-16 08:00  test
    key-ac06f33e6310  rgl_xCx…KtU  active    (system)  none   none             2027-06-01 00:00  ci
    ");
    insta::assert_snapshot!(world.run(&["key", "show", &id]).await.out, @r"
    key              key-a83d7e35de18
    name             test
    fingerprint      rgl_7U2…hJf
    state            in grace
    owner            anna
    tools            all
    knowledge bases  all of anna
    created          2027-01-15 08:00 UTC
    expires          never
    replaced by      key-189deb96b2a4
    works until      2027-01-16 08:00 UTC
    rate limit       the deployment's default
    ");
    insta::assert_snapshot!(world.run(&["key", "show", &id, "--json"]).await.out, @r#"
    {
      "key_id": "key-a83d7e35de18",
      "name": "test",
      "fingerprint": "rgl_7U2…hJf",
      "state": "in_grace",
      "owner": "anna",
      "tools": [
        "ask",
        "get_knowledge_base",
        "get_task",
        "list_documents",
        "list_knowledge_bases",
        "retrieve"
      ],
      "scope": "all",
      "kb_ids": [],
      "enabled": true,
      "created_at": "2027-01-15T08:00:00.000Z",
      "expires_at": null,
      "revoked_at": null,
      "replaced_by": "key-189deb96b2a4",
      "grace_ends_at": "2027-01-16T08:00:00.000Z",
      "rate_limit": null,
      "daily_quotas": {},
      "audit_text": null
    }
    "#);
    world
        .run(&[
            "kb",
            "add",
            "manuals",
            "--name",
            "产品手册",
            "--description",
            "All manuals",
            "--backend",
            "embedded",
            "--backend-id",
            "ABCDEFGHIJ",
        ])
        .await;
    world
        .run(&[
            "kb",
            "add",
            "notes",
            "--description",
            "Notes",
            "--owner",
            "anna",
        ])
        .await;
    insta::assert_snapshot!(world.run(&["kb", "list"]).await.out, @r"
    ID       OWNER     BACKEND              DOCUMENTS  UPDATED (UTC)     NAME
    manuals  (system)  embedded:ABCDEFGHIJ  unknown    2027-01-15 08:01  产品手册
    notes    anna      embedded             unknown    2027-01-15 08:01  notes
    ");
    insta::assert_snapshot!(world.run(&["kb", "show", "manuals"]).await.out, @r"
    knowledge base   manuals
    name             产品手册
    description      All manuals
    owner            none (system keys only)
    backend          embedded:ABCDEFGHIJ
    strategy         bm25
    documents        unknown
    passages         unknown
    created          2027-01-15 08:01 UTC
    updated          2027-01-15 08:01 UTC
    ");
}
