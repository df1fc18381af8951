//! Questions that belong to a conversation.

use raglan_core::audit::privacy::TextPolicy;
use raglan_core::key_record::ScopeKind;
use raglan_engines::configuration::answers::parse;
use serde_json::{Value, json};

use crate::support::chat::{ChatEndpoint, Reply};
use crate::support::{Behaviour, Request, World, call, id, passage};

const FIRST: &str = "How many days of annual leave does a full-time employee get?";
const FOLLOW_UP: &str = "And part-time?";

fn ask(question: &str, session_id: &str) -> Request {
    let arguments = json!({ "question": question, "kb_id": "script", "session_id": session_id });
    call("ask", arguments)
}

fn carried(question: &str, history: &Value) -> Request {
    let arguments = json!({ "question": question, "kb_id": "script", "history": history });
    call("ask", arguments)
}

/// What the engine was last asked for.
fn searched(world: &World) -> String {
    world.engine.requests().pop().unwrap().query
}

/// How many turns are kept, of all keys and sessions.
async fn kept(world: &World) -> usize {
    let scan = world
        .clients
        .dynamodb
        .sdk()
        .scan()
        .table_name(&world.resources.state_table);
    let items = scan.send().await.unwrap().items.unwrap_or_default();
    let is_turn = |sort: &str| sort.starts_with("session#");
    items
        .iter()
        .filter(|item| item["sort"].as_s().is_ok_and(|sort| is_turn(sort)))
        .count()
}

#[tokio::test]
async fn a_follow_up_is_searched_for_with_what_it_continues() {
    let world = World::start().await;
    let key = world.full_key().await;
    ask(FIRST, "s1").key(&key).send(&world).await.structured();
    assert_eq!(searched(&world), FIRST);
    world.clock.advance_seconds(60);
    let answer = ask(FOLLOW_UP, "s1")
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), format!("{FOLLOW_UP}\n{FIRST}"));
    assert_eq!(answer["session_id"], "s1");

    world.clock.advance_seconds(60);
    ask(FOLLOW_UP, "another")
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), FOLLOW_UP);
    // Without a name the conversation begins under a new one, and goes on under it.
    let arguments = json!({ "question": FIRST, "kb_id": "script" });
    let begun = call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    world.clock.advance_seconds(60);
    let name = begun["session_id"].as_str().unwrap();
    ask(FOLLOW_UP, name)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), format!("{FOLLOW_UP}\n{FIRST}"));
}

#[tokio::test]
async fn sessions_of_one_name_under_two_keys_never_meet() {
    let world = World::start().await;
    let (one, two) = (world.full_key().await, world.key("key-2", |_| {}).await);
    ask(FIRST, "default")
        .key(&one)
        .send(&world)
        .await
        .structured();
    world.clock.advance_seconds(60);
    ask(FOLLOW_UP, "default")
        .key(&two)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), FOLLOW_UP);
}

#[tokio::test]
async fn a_turn_ends_with_its_time_even_while_it_is_still_stored() {
    let world = World::configured(|config| config.session_ttl_seconds = 600).await;
    let key = world.full_key().await;
    ask(FIRST, "s1").key(&key).send(&world).await.structured();
    world.clock.advance_seconds(600);
    ask(FOLLOW_UP, "s1")
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), FOLLOW_UP);
    assert_eq!(kept(&world).await, 2);
}

#[tokio::test]
async fn a_model_gets_the_last_six_turns_without_their_citations() {
    let endpoint = ChatEndpoint::start([Reply::Says("Thirty days [1].")]).await;
    let answers = parse(&endpoint.configuration()).unwrap();
    let world = World::configured(|config| config.answers = answers).await;
    let key = world.full_key().await;
    for n in 1..=8 {
        let question = format!("Question {n}: how many days of annual leave?");
        ask(&question, "s1")
            .key(&key)
            .send(&world)
            .await
            .structured();
        world.clock.advance_seconds(60);
    }
    let messages = endpoint.last().body["messages"].as_array().unwrap().clone();
    assert_eq!(messages.len(), 1 + 2 * 6 + 1);
    assert_eq!(
        messages[1]["content"],
        "Question 2: how many days of annual leave?"
    );
    assert_eq!(
        messages[2],
        json!({ "role": "assistant", "content": "Thirty days." })
    );
}

#[tokio::test]
async fn a_conversation_that_the_caller_carries_is_kept_nowhere() {
    let world = World::start().await;
    let key = world.full_key().await;
    let history = json!([{ "question": FIRST, "answer": "Thirty days. [1]" }]);
    let answer = carried(FOLLOW_UP, &history)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), format!("{FOLLOW_UP}\n{FIRST}"));
    assert_eq!(answer.get("session_id"), None);
    let answer = carried(FIRST, &json!([]))
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answer.get("session_id"), None);
    assert_eq!(kept(&world).await, 0);
}

#[tokio::test]
async fn an_unusable_conversation_is_refused_in_words_that_help() {
    let world = World::configured(|config| config.session_ttl_seconds = 0).await;
    let key = world.full_key().await;
    for (more, expected) in [
        (
            json!({ "session_id": "s1" }),
            "send the turns so far in `history`",
        ),
        (
            json!({ "session_id": "s1", "history": [] }),
            "send one of them",
        ),
        (
            json!({ "history": "yesterday" }),
            "`history` must be a list of objects.",
        ),
        (
            json!({ "history": [{ "answer": "x" }] }),
            "`history[].question` is required.",
        ),
        (
            json!({ "history": [{ "question": "x", "by": "y" }] }),
            "`history[].by` is not known here",
        ),
        (
            json!({ "history": vec![json!({ "question": "x" }); 51] }),
            "must not have more than 50 items",
        ),
    ] {
        let mut arguments = json!({ "question": FIRST, "kb_id": "script" });
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (text, meta) = call("ask", arguments)
            .key(&key)
            .send(&world)
            .await
            .tool_error();
        assert_eq!(meta["code"], "invalid_arguments", "{more}");
        assert!(text.contains(expected), "{more}: {text}");
    }
    let arguments = json!({ "question": FIRST, "kb_id": "script" });
    let answer = call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answer.get("session_id"), None);
    assert_eq!(kept(&world).await, 0);
}

#[tokio::test]
async fn a_repeated_call_adds_no_second_turn() {
    let world = World::start().await;
    let key = world.full_key().await;
    let arguments = json!({
        "question": FIRST, "kb_id": "script", "session_id": "s1", "idempotency_key": "k-1"
    });
    for _ in 0..3 {
        call("ask", arguments.clone())
            .key(&key)
            .send(&world)
            .await
            .structured();
        world.clock.advance_seconds(60);
    }
    assert_eq!(kept(&world).await, 1);

    // A call that failed adds nothing, and its repetition one turn.
    let arguments = json!({
        "question": FIRST, "kb_id": "script", "session_id": "s1", "idempotency_key": "k-2"
    });
    world
        .engine
        .order("script", Behaviour::Unavailable("away".to_owned()));
    call("ask", arguments.clone())
        .key(&key)
        .send(&world)
        .await
        .tool_error();
    assert_eq!(kept(&world).await, 1);
    world.engine.order(
        "script",
        Behaviour::Passages(vec![passage(1, "Leave is thirty days.")]),
    );
    call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(kept(&world).await, 2);
}

#[tokio::test]
async fn two_turns_at_once_are_both_kept() {
    let world = World::start().await;
    let key = world.full_key().await;
    let both = [
        ask(FIRST, "s1").key(&key),
        ask("Who books travel to Norway by train?", "s1").key(&key),
    ];
    let (one, two) = tokio::join!(both[0].send(&world), both[1].send(&world));
    one.structured();
    two.structured();
    assert_eq!(kept(&world).await, 2);
}

#[tokio::test]
async fn an_answer_from_what_is_out_of_scope_by_now_is_forgotten() {
    let world = World::start().await;
    let key = world.full_key().await;
    let question = "How many days of leave does every employee get?";
    let answer = ask(question, "s1")
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(answer["grounded"], true);
    world.clock.advance_seconds(60);
    world
        .change_key(&key, |record| {
            record.scope = ScopeKind::List;
            record.kb_ids = [id("anna-notes")].into();
        })
        .await;
    let arguments = json!({ "question": FOLLOW_UP, "session_id": "s1" });
    call("ask", arguments)
        .key(&key)
        .send(&world)
        .await
        .structured();
    assert_eq!(searched(&world), FOLLOW_UP);
}

#[tokio::test]
async fn a_turn_that_cannot_be_kept_is_told_and_costs_no_answer() {
    let endpoint = ChatEndpoint::start([Reply::SaysLater("Thirty days [1].")]).await;
    let answers = parse(&endpoint.configuration()).unwrap();
    let world = World::configured(|config| {
        config.answers = answers;
        config.ask_concurrency = 0;
    })
    .await;
    let key = world.full_key().await;
    let request = ask(FIRST, "s1").key(&key);
    let closing = async {
        endpoint.asked().await;
        world.dynamodb.close();
        endpoint.release();
    };
    let (answer, ()) = tokio::join!(request.send(&world), closing);
    world.dynamodb.open();
    let answer = answer.structured();
    assert_eq!(answer["answer"], "Thirty days [1].");
    assert!(
        answer["warnings"][0]
            .as_str()
            .unwrap()
            .contains("could not be kept"),
        "{answer}"
    );
    assert_eq!(kept(&world).await, 0);
}

#[tokio::test]
async fn the_words_of_a_conversation_are_written_down_as_those_of_a_question() {
    let world = World::configured(|config| config.audit_keeper.text = TextPolicy::Drop).await;
    let key = world.full_key().await;
    let history = json!([{ "question": "PRIVATE question", "answer": "PRIVATE answer" }]);
    carried("PRIVATE follow-up", &history)
        .key(&key)
        .send(&world)
        .await
        .structured();
    let events = world.audit_events().await;
    let written = serde_json::to_string(&events).unwrap();
    assert!(!written.contains("PRIVATE"), "{written}");
    assert!(written.contains("history"), "{written}");
}
