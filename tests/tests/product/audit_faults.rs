//! The way of audit events in bad weather: from the MCP function's outbox over SQS and the audit function
//! into the chains of the table, while requests to both services fail, runs of the function die, and
//! messages come twice and in another order. No event is lost, none is doubled, every chain is whole.
//!
//! `tests/faults/run` does it with 100,000 events and prints the figures of docs/audit.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aws_lambda_events::sqs::SqsEvent;
use raglan_audit::handler::Handler;
use raglan_aws::AwsClients;
use raglan_cli::local::emulators::{EmulatorOptions, Emulators};
use raglan_cli::local::event_source::EventSource;
use raglan_cli::local::provision::{LocalResources, provision};
use raglan_cli::local::template::LocalTemplate;
use raglan_core::audit::{AuditEvent, DEFAULT_RETENTION_DAYS};
use raglan_core::audit_chain::verify;
use raglan_core::clock::{ManualClock, Timestamp};
use raglan_core::random::{Random, SequenceRandom};
use raglan_mcp::config::AuditMode;
use raglan_mcp::context::CallContext;
use raglan_mcp::trail::Trail;
use raglan_store::audit_table::{Bounds, Slice};
use raglan_store::dead_letters::REASON;
use raglan_store::{AuditQueue, AuditTable, AuditWriter, DeadLetterQueue};
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::support::capture_log;
use crate::support::weather::Weather;

const SMALL_RUN: u32 = 1_000;
const LARGE_RUN: u32 = 100_000;
const SEED: u64 = 20_261_130;
/// So many requests to a service, runs of the function, and events that are sent twice, in a hundred.
const MISHAPS_PERCENT: u8 = 5;
const SENDERS: u32 = 4;
const DRAINS: u32 = 4;
/// How far apart an event can be from its place in the order, and how many may wait in the queue.
const WINDOW: usize = 256;
const MAX_WAITING: u64 = 2_000;
/// Three requests in ten have the first key, so that drains meet in its chain.
const KEYS: u32 = 8;
const DAYS: [&str; 2] = ["2026-11-29", "2026-11-30"];
/// After so many events there is a message that is none.
const NO_EVENT_EVERY: u32 = 500;
const BATCH_TIME: Duration = Duration::from_secs(10);
/// When a message comes again that no run has acknowledged: as in the template after all runs that may
/// still work on it, although not after six of them.
const VISIBILITY_SECONDS: u32 = 20;

/// Numbers from a seed.
struct Dice(SequenceRandom);

impl Dice {
    fn seeded(seed: u64) -> Self {
        Self(SequenceRandom::seeded(seed))
    }

    fn below(&self, limit: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes).unwrap();
        usize::from_le_bytes(bytes) % limit
    }

    fn hits(&self, percent: u8) -> bool {
        self.below(100) < usize::from(percent)
    }

    fn shuffle<T>(&self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            items.swap(n, self.below(n + 1));
        }
    }
}

/// Event number `n`: the intent (even) or the outcome (odd) of a request, on one of two days.
fn event(n: u32) -> AuditEvent {
    let request = n / 2;
    let key = match request % 10 {
        0..3 => 0,
        _ => 1 + request % (KEYS - 1),
    };
    let day = DAYS[(request / KEYS) as usize % DAYS.len()];
    let midnight = Timestamp::parse(&format!("{day}T00:00:00.000Z")).unwrap();
    let at = Timestamp::from_epoch_ms(midnight.epoch_ms() + i64::from(n));
    let ms = at.epoch_ms();
    let event = json!({
        "schema_version": 2,
        "event_id": format!("{:08x}-{:04x}-7000-8000-{n:012x}", ms >> 16, ms & 0xffff),
        "at": at.to_string(), "request_id": format!("request-{request}"),
        "phase": if n.is_multiple_of(2) { "intent" } else { "outcome" },
        "decision": "allowed", "http_status": if n.is_multiple_of(2) { 0 } else { 200 },
        "method": "tools/call", "tool": "retrieve", "key_id": key_id(key), "duration_ms": 12,
        "parameters": format!("{{\"query\":\"{}\"}}", "leave ".repeat(20)), "params_bytes": 134,
        "knowledge_bases": ["handbook"],
    });
    serde_json::from_value(event).unwrap()
}

fn key_id(n: u32) -> String {
    format!("key-{n:02}")
}

/// The number of the event with that identifier.
fn number_of(event_id: &str) -> usize {
    usize::from_str_radix(event_id.rsplit('-').next().unwrap(), 16).unwrap()
}

/// Asks until there is an answer: a busy machine is bad weather, too.
async fn insist<T, E>(call: impl AsyncFn() -> Result<T, E>) -> T {
    loop {
        if let Ok(answer) = call().await {
            return answer;
        }
    }
}

/// What is counted while it runs.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    sent_twice: AtomicU64,
    delivered: AtomicU64,
    runs: AtomicU64,
    died_in_the_middle: AtomicU64,
    died_before_the_acknowledgement: AtomicU64,
    redriven: AtomicU64,
    is_over: AtomicBool,
}

fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// What came of it.
#[derive(Debug, Default)]
struct Report {
    events: u32,
    seconds: u64,
    mishaps: BTreeMap<String, u64>,
    progress: Progress,
    out_of_the_log: usize,
    no_events: usize,
    set_aside: usize,
    lost: usize,
    doubled: usize,
    chains: usize,
    faults: Vec<String>,
    /// The greatest amount of memory in each tenth of the run, in MB.
    memory_mb: Vec<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        writeln!(f, "{} events in {} s", self.events, self.seconds)?;
        for (name, times) in &self.mishaps {
            writeln!(f, "  {name}: {times}")?;
        }
        writeln!(
            f,
            "  sent twice on purpose: {}",
            of(&self.progress.sent_twice)
        )?;
        let died = of(&self.progress.died_in_the_middle);
        writeln!(f, "  runs that died in the middle: {died}")?;
        let died = of(&self.progress.died_before_the_acknowledgement);
        writeln!(f, "  runs that died before the acknowledgement: {died}")?;
        writeln!(f, "runs: {}", of(&self.progress.runs))?;
        writeln!(f, "messages delivered: {}", of(&self.progress.delivered))?;
        writeln!(
            f,
            "moved back out of the dead-letter queue: {}",
            of(&self.progress.redriven)
        )?;
        writeln!(f, "sent again out of the log: {}", self.out_of_the_log)?;
        writeln!(
            f,
            "no events: {}, of these set aside: {}",
            self.no_events, self.set_aside
        )?;
        writeln!(f, "memory in each tenth, MB: {:?}", self.memory_mb)?;
        writeln!(f, "chains: {}, faults: {}", self.chains, self.faults.len())?;
        write!(f, "lost: {}, doubled: {}", self.lost, self.doubled)
    }
}

/// Everything that the events pass.
struct Way {
    events: u32,
    dynamodb: Weather,
    sqs: Weather,
    /// Through the weather.
    clients: AwsClients,
    /// Past it, to look.
    clear: AwsClients,
    resources: LocalResources,
    clock: Arc<ManualClock>,
    progress: Progress,
}

impl Way {
    /// Four instances of the MCP function send a quarter of the events each.
    async fn send(&self, sender: u32) {
        let random: Arc<dyn Random> = Arc::new(SequenceRandom::seeded(SEED + u64::from(sender)));
        let dice = Dice::seeded(SEED + 100 + u64::from(sender));
        let queue = AuditQueue::new(self.clients.sqs.clone(), &self.resources.audit_queue_url);
        let trail = Trail::new(
            queue,
            AuditMode::Deferred,
            false,
            self.clock.clone(),
            random,
        );
        trail.defer();
        let context = CallContext {
            request_id: "request".to_owned(),
            deadline: None,
            source_ip: None,
        };
        let numbers: Vec<u32> = (sender..self.events).step_by(SENDERS as usize).collect();
        for window in numbers.chunks(WINDOW) {
            self.wait_for_room().await;
            let mut window = window.to_vec();
            let twice: Vec<u32> = window
                .iter()
                .copied()
                .filter(|_| dice.hits(MISHAPS_PERCENT))
                .collect();
            count(&self.progress.sent, window.len());
            count(&self.progress.sent_twice, twice.len());
            window.extend(twice);
            dice.shuffle(&mut window);
            // As many as the outbox holds.
            for waiting in window.chunks(32) {
                for &n in waiting {
                    trail.outcome(vec![event(n)], &context).await.unwrap();
                    if n.is_multiple_of(NO_EVENT_EVERY) {
                        self.send_no_event(n).await;
                    }
                }
                trail.deliver_waiting().await;
            }
        }
    }

    async fn send_no_event(&self, n: u32) {
        let url = &self.resources.audit_queue_url;
        let message = self.clients.sqs.sdk().send_message().queue_url(url);
        let message = message.message_body(format!("no event {n}"));
        while message.clone().send().await.is_err() {}
    }

    async fn wait_for_room(&self) {
        while self.waiting(&self.resources.audit_queue_url).await > MAX_WAITING {
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn waiting(&self, queue_url: &str) -> u64 {
        use aws_sdk_sqs::types::QueueAttributeName as Name;
        let attributes = self
            .clear
            .sqs
            .sdk()
            .get_queue_attributes()
            .queue_url(queue_url);
        let attributes = attributes
            .attribute_names(Name::ApproximateNumberOfMessages)
            .attribute_names(Name::ApproximateNumberOfMessagesNotVisible);
        let answer = insist(async || attributes.clone().send().await).await;
        let counts = answer.attributes.unwrap();
        counts
            .values()
            .map(|count| count.parse::<u64>().unwrap())
            .sum()
    }

    /// One of the instances of the audit function.
    async fn drain(&self, drain: u32) {
        let dice = Dice::seeded(SEED + 200 + u64::from(drain));
        let writer = AuditWriter::new(
            AuditTable::new(self.clients.dynamodb.clone(), &self.resources.audit_table),
            DEFAULT_RETENTION_DAYS,
            self.clock.clone(),
            Arc::new(SequenceRandom::seeded(SEED + 300 + u64::from(drain))),
        );
        let dead_letters = &self.resources.audit_dead_letter_queue_url;
        let dead_letters = DeadLetterQueue::new(self.clients.sqs.clone(), dead_letters);
        let handler = Handler::new(writer, dead_letters);
        let source = loop {
            let url = &self.resources.audit_queue_url;
            if let Ok(source) = EventSource::connect(&self.clients, url).await {
                break source;
            }
        };
        let run = async |mut event: SqsEvent| {
            dice.shuffle(&mut event.records);
            count(&self.progress.runs, 1);
            count(&self.progress.delivered, event.records.len());
            let (dies, in_the_middle) = (dice.hits(MISHAPS_PERCENT), dice.hits(50));
            let running = handler.handle(event, BATCH_TIME);
            if dies && in_the_middle {
                count(&self.progress.died_in_the_middle, 1);
                let _ = timeout(Duration::from_millis(dice.below(60) as u64), running).await;
                return Err("the run died");
            }
            let response = running.await;
            if dies {
                count(&self.progress.died_before_the_acknowledgement, 1);
                return Err("the run died");
            }
            Ok(response)
        };
        while !self.progress.is_over.load(Ordering::Relaxed) {
            // What could not be received or acknowledged comes again.
            let _ = Box::pin(source.poll(1, &run)).await;
        }
    }

    /// Moves back what SQS put into the dead-letter queue, as an operator does, and takes out what was
    /// set aside. Returns how many messages were moved back.
    async fn redrive(&self, set_aside: &mut BTreeSet<String>) -> usize {
        let dead_letters = &self.resources.audit_dead_letter_queue_url;
        let mut moved = 0;
        loop {
            let receive = self
                .clear
                .sqs
                .sdk()
                .receive_message()
                .queue_url(dead_letters);
            let receive = receive.max_number_of_messages(10);
            let receive = receive.message_attribute_names("All");
            let received = insist(async || receive.clone().send().await).await;
            let messages = received.messages.unwrap_or_default();
            if messages.is_empty() {
                count(&self.progress.redriven, moved);
                return moved;
            }
            for message in messages {
                let body = message.body().unwrap();
                let attributes = message.message_attributes();
                if attributes.is_some_and(|attributes| attributes.contains_key(REASON)) {
                    set_aside.insert(body.to_owned());
                } else {
                    let url = &self.resources.audit_queue_url;
                    let back = self.clear.sqs.sdk().send_message().queue_url(url);
                    let back = back.message_body(body);
                    insist(async || back.clone().send().await).await;
                    moved += 1;
                }
                let delete = self
                    .clear
                    .sqs
                    .sdk()
                    .delete_message()
                    .queue_url(dead_letters);
                let delete = delete.receipt_handle(message.receipt_handle().unwrap());
                insist(async || delete.clone().send().await).await;
            }
        }
    }

    /// Waits until nothing is on its way any more, and says so. Returns what was set aside.
    async fn finish(&self) -> BTreeSet<String> {
        let mut set_aside = BTreeSet::new();
        loop {
            let moved = self.redrive(&mut set_aside).await;
            let waiting = self.waiting(&self.resources.audit_queue_url).await
                + self
                    .waiting(&self.resources.audit_dead_letter_queue_url)
                    .await;
            if moved == 0 && waiting == 0 {
                self.progress.is_over.store(true, Ordering::Relaxed);
                return set_aside;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Sends what the queue did not take and the log has, as an operator does.
    async fn recover(&self, log: &str) -> usize {
        let queue = AuditQueue::new(self.clear.sqs.clone(), &self.resources.audit_queue_url);
        let mut sent = 0;
        for line in log.lines().filter(|line| line.contains("AUDIT_NOT_SENT")) {
            let entry: Value = serde_json::from_str(line).unwrap();
            let event = serde_json::from_str(entry["event"].as_str().unwrap()).unwrap();
            insist(async || queue.send(&event).await).await;
            sent += 1;
        }
        sent
    }

    /// The greatest amount of memory in each tenth of the run.
    async fn watch_memory(&self) -> Vec<u64> {
        let mut tenths = vec![0; 10];
        while !self.progress.is_over.load(Ordering::Relaxed) {
            let sent = self.progress.sent.load(Ordering::Relaxed);
            let tenth = (sent * 10 / u64::from(self.events).max(1)).min(9);
            let tenth = &mut tenths[usize::try_from(tenth).unwrap()];
            *tenth = (*tenth).max(resident_mb());
            sleep(Duration::from_millis(200)).await;
        }
        tenths
    }

    /// Reads the whole trail.
    async fn inspect(&self, report: &mut Report) {
        let table = AuditTable::new(self.clear.dynamodb.clone(), &self.resources.audit_table);
        let mut times = vec![0_usize; self.events as usize];
        for key in (0..KEYS).map(key_id) {
            for day in DAYS {
                let head = insist(async || table.head(&key, day).await).await;
                let records = insist(async || table.chain(&key, day).await).await;
                let faults = verify(&records, head, head, &[]);
                let named = faults.iter().map(|fault| format!("{key} {day}: {fault}"));
                report.faults.extend(named);
                report.chains += 1;
                let slice = Slice::Key(&key, day);
                for record in insist(async || table.all(slice, Bounds::default()).await).await {
                    times[number_of(&record.event().event_id)] += 1;
                }
            }
        }
        report.lost = times.iter().filter(|times| **times == 0).count();
        report.doubled = times.iter().filter(|times| **times > 1).count();
    }
}

/// Memory of this process, in which the emulators run too.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

async fn run(events: u32) -> Report {
    let log = capture_log(Level::ERROR);
    let folder = tempfile::tempdir().unwrap();
    // The services have threads of their own.
    let services = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let options = EmulatorOptions {
        folder: Some(folder.path().to_owned()),
        ..EmulatorOptions::default()
    };
    let emulators = services
        .spawn(Emulators::start(options))
        .await
        .unwrap()
        .unwrap();
    let clear = emulators.clients();
    let mut template = LocalTemplate::embedded().unwrap();
    template.queues[0].visibility_timeout_seconds = Some(VISIBILITY_SECONDS);
    let resources = provision(&clear, &template).await.unwrap();
    let (dynamodb_url, sqs_url) = (emulators.dynamodb_url.clone(), emulators.sqs_url.clone());
    let weather = services.spawn(async move {
        let dynamodb = Weather::before(&dynamodb_url, MISHAPS_PERCENT, SEED + 1).await;
        (
            dynamodb,
            Weather::before(&sqs_url, MISHAPS_PERCENT, SEED + 2).await,
        )
    });
    let (dynamodb, sqs) = weather.await.unwrap();
    let noon = Timestamp::parse(&format!("{}T12:00:00.000Z", DAYS[1])).unwrap();
    let way = Rc::new(Way {
        events,
        clients: AwsClients::for_local_endpoints(&dynamodb.url, &sqs.url),
        dynamodb,
        sqs,
        clear,
        resources,
        clock: Arc::new(ManualClock::at(noon)),
        progress: Progress::default(),
    });
    let began = Instant::now();
    // Each instance is a task of its own, on this thread, where the log is captured.
    let instances = LocalSet::new();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let way = Rc::clone(&way);
            instances.spawn_local(async move { way.send(sender).await })
        })
        .collect();
    let drains: Vec<_> = (0..DRAINS)
        .map(|drain| {
            let way = Rc::clone(&way);
            instances.spawn_local(async move { way.drain(drain).await })
        })
        .collect();
    let watching = Rc::clone(&way);
    let memory = instances.spawn_local(async move { watching.watch_memory().await });
    let ending = async {
        for sender in senders {
            sender.await.unwrap();
        }
        let out_of_the_log = way.recover(&log.text()).await;
        let set_aside = way.finish().await;
        for drain in drains {
            drain.await.unwrap();
        }
        (out_of_the_log, set_aside, memory.await.unwrap())
    };
    let (out_of_the_log, set_aside, memory_mb) = instances.run_until(ending).await;
    let mut report = Report {
        events,
        seconds: began.elapsed().as_secs(),
        mishaps: [way.dynamodb.mishaps(), way.sqs.mishaps()]
            .into_iter()
            .flatten()
            .collect(),
        out_of_the_log,
        no_events: events.div_ceil(NO_EVENT_EVERY) as usize,
        set_aside: set_aside.len(),
        memory_mb,
        ..Report::default()
    };
    way.inspect(&mut report).await;
    report.progress = Rc::into_inner(way).unwrap().progress;
    emulators.shutdown().await;
    services.shutdown_background();
    report
}

fn check(report: &Report) {
    assert_eq!((report.lost, report.doubled), (0, 0), "{report}");
    assert_eq!(report.faults, [""; 0], "{report}");
    assert_eq!(report.set_aside, report.no_events, "{report}");
    assert_eq!(report.chains, KEYS as usize * DAYS.len());
    // The weather was bad: nobody has to prove anything on a sunny day.
    for mishap in ["Refused", "RequestLost", "AnswerLost"] {
        for operation in ["SendMessage", "TransactWriteItems"] {
            let name = format!("{operation} {mishap}");
            assert!(report.mishaps.contains_key(&name), "no {name}: {report}");
        }
    }
}

#[tokio::test]
async fn in_bad_weather_no_event_is_lost_or_doubled_and_every_chain_is_whole() {
    check(&Box::pin(run(SMALL_RUN)).await);
}

#[tokio::test]
#[ignore = "takes minutes: tests/faults/run"]
async fn in_bad_weather_a_hundred_thousand_events_arrive_once_in_bounded_memory() {
    let number = std::env::var("FAULT_EVENTS").ok();
    let events = number.map_or(LARGE_RUN, |number| number.parse().unwrap());
    let report = Box::pin(run(events)).await;
    println!("{report}");
    check(&report);
    // What a queue of bounded length needs is there after two tenths. A short run jumps over some.
    let warm = report.memory_mb[1..].iter().find(|mb| **mb > 0).unwrap();
    let greatest = report.memory_mb.iter().max().unwrap();
    assert!(*greatest <= warm + 100, "{report}");
}
