//! The documents and questions under `examples/`: what a first user asks must be found and answered.

#![expect(clippy::unwrap_used, reason = "in a test a failure is a failed test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use raglan_core::catalog::KnowledgeBaseId;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_ingest::build::{IndexOptions, Reading, index_folder};
use raglan_rag::answer::extractive_answer;
use raglan_rag::backend::{Backend as _, EngineCall, Filters, RetrieveRequest};
use raglan_rag::embedded::EmbeddedBackend;
use raglan_rag::merge::{ScoredPassage, merge};
use serde::Deserialize;
use tempfile::TempDir;

const TOP_K: usize = 5;

/// Questions about the world, and questions that a handbook might answer and this one does not.
const NOT_ANSWERED: &[&str] = &[
    "What is the capital of France?",
    "How tall is Mount Everest?",
    "Who wrote Pride and Prejudice?",
    "What is the boiling point of ethanol?",
    "How do I cook risotto for six people?",
    "What is the best way to train for a marathon?",
    "Which programming language was created by Guido van Rossum?",
    "When did the Berlin wall fall?",
    "What is the exchange rate between the euro and the yen?",
    "How do I change the oil in my car?",
    "What are the symptoms of vitamin D deficiency?",
    "Does the company have a gym membership benefit?",
    "What is the parental leave policy in Norway?",
    "How do I order business cards?",
    "What is the salary of a senior engineer?",
    "Where can I park my bicycle at the office?",
    "Which pension fund does the company use?",
    "How many lives does a cat have?",
    "What is the speed of light in water?",
    "How do I install Windows on a Mac?",
    "What is the weather like in Paris tomorrow?",
    "Explain the theory of relativity",
    "Tell me a joke about penguins",
    "法国的首都是哪里？",
    "珠穆朗玛峰有多高？",
    "谁发明了电灯？",
    "红烧肉怎么做才好吃？",
    "公司食堂几点开门？",
    "北京到上海的高铁票价是多少？",
    "怎么办理护照？",
    "苹果手机怎么截图？",
    "公司年会在哪里举办？",
    "如何学习弹钢琴？",
    "糖尿病有什么症状？",
    "员工体检在哪家医院做？",
    "如何申请停车位？",
    "唐朝是哪一年建立的？",
    "怎样申请公积金贷款？",
    "世界上最大的海洋是哪个？",
    "什么是量子计算？",
];

#[derive(Deserialize)]
struct Queries {
    questions: Vec<Question>,
    off_topic: Vec<String>,
}

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "question")]
    text: String,
    filename: String,
    contains: String,
}

struct Knowledge {
    // Removed when the test ends.
    _index: TempDir,
    engine: EmbeddedBackend,
    kb_id: KnowledgeBaseId,
    queries: Queries,
}

fn examples() -> Knowledge {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let index = tempfile::tempdir().unwrap();
    let kb_id = KnowledgeBaseId::parse("examples").unwrap();
    let options = IndexOptions {
        source_dir: folder.join("knowledge"),
        index_root: index.path().to_owned(),
        kb_id: kb_id.clone(),
        reading: Reading::Changed,
    };
    let clock = ManualClock::at(Timestamp::from_epoch_seconds(1_800_000_000));
    let report = index_folder(&options, &clock, &mut |_| {}).unwrap();
    assert_eq!(report.failed, []);
    let queries = serde_json::from_slice(&std::fs::read(folder.join("queries.json")).unwrap());
    let engine = EmbeddedBackend::new(index.path());
    Knowledge {
        _index: index,
        engine,
        kb_id,
        queries: queries.unwrap(),
    }
}

impl Knowledge {
    async fn passages(&self, query: &str) -> Vec<ScoredPassage> {
        let request = RetrieveRequest {
            query: query.to_owned(),
            top_k: TOP_K,
            min_score: None,
            filters: Filters::default(),
        };
        let call = EngineCall::within(Duration::from_mins(1));
        let found = self
            .engine
            .retrieve("examples", &request, &call)
            .await
            .unwrap();
        merge(vec![(self.kb_id.clone(), found)], TOP_K).passages
    }
}

/// Text without white space: a PDF breaks its lines anywhere.
fn packed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[tokio::test]
async fn questions_are_found_answered_and_grounded() {
    let examples = examples();
    let (mut found, mut answered, mut right) = (0, 0, 0);
    for Question {
        text: question,
        filename,
        contains,
    } in &examples.queries.questions
    {
        let passages = examples.passages(question).await;
        found += usize::from(
            passages
                .iter()
                .any(|scored| scored.passage.filename == *filename),
        );
        let Some(answer) = extractive_answer(question, &passages) else {
            println!("no answer: {question}");
            continue;
        };
        answered += 1;
        let holds = packed(&answer.text).contains(&packed(contains));
        if !holds {
            println!("not in the answer: {question}: {}", answer.text);
        }
        right += usize::from(holds);
    }
    let asked = examples.queries.questions.len();
    println!("{asked} questions: {found} found, {answered} answered, {right} with the right place");
    assert!(found * 100 >= asked * 95, "{found} of {asked} found");
    assert!(
        answered * 100 >= asked * 80,
        "{answered} of {asked} answered"
    );
    assert!(
        right * 100 >= asked * 75,
        "{right} of {asked} answered with the right place"
    );
}

#[tokio::test]
async fn questions_that_the_documents_do_not_answer_get_no_answer() {
    let examples = examples();
    for question in &examples.queries.off_topic {
        let passages = examples.passages(question).await;
        assert_eq!(extractive_answer(question, &passages), None, "{question}");
    }
    // Words can meet by chance: "the speed of light in water" and a sensor for wind speed that is rinsed
    // with water. One in fifty is the price of the floor.
    let mut answered: Vec<&str> = Vec::new();
    for question in NOT_ANSWERED {
        let passages = examples.passages(question).await;
        answered.extend(extractive_answer(question, &passages).map(|_| *question));
    }
    let bound = NOT_ANSWERED.len() / 40;
    assert!(answered.len() <= bound, "answered: {answered:?}");
}

#[test]
fn the_poisoned_document_is_marked_and_no_other_one() {
    let folder = TempDir::new().unwrap();
    let options = IndexOptions {
        source_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/knowledge"),
        index_root: folder.path().to_owned(),
        kb_id: KnowledgeBaseId::parse("handbook").unwrap(),
        reading: Reading::Changed,
    };
    let clock = ManualClock::at(Timestamp::parse("2026-11-30").unwrap());
    let report = index_folder(&options, &clock, &mut |_| {}).unwrap();
    let marked: Vec<&str> = report
        .marked
        .iter()
        .map(|file| file.filename.as_str())
        .collect();
    assert_eq!(marked, ["support/partner-note-poisoned.md"]);
    let rules: Vec<&str> = report.marked[0]
        .findings
        .keys()
        .map(String::as_str)
        .collect();
    for rule in [
        "instruction_override",
        "fake_role_line",
        "hidden_markup",
        "invisible_char",
        "exfil_url",
    ] {
        assert!(rules.contains(&rule), "{rule} is not among {rules:?}");
    }
}
