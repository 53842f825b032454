//! rdkafka (librdkafka) as a program of the client matrix. The command line and the lines that are printed: compat-tests/doc.go.
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;
use std::collections::HashSet;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const PER_CODEC: usize = 100;
const CALL: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

struct Run {
    addresses: String,
    name: String,
    replicas: i32,
    told: Receiver<()>,
    passed: AtomicU32,
    failed: AtomicU32,
}

impl Run {
    fn check(&self, what: &str, ok: bool, detail: &str) {
        if ok {
            self.passed.fetch_add(1, Ordering::SeqCst);
            println!("ok {what}");
        } else {
            self.failed.fetch_add(1, Ordering::SeqCst);
            println!("FAILED {what} {detail}");
        }
    }

    fn over(&self) -> bool {
        self.told.try_recv().is_ok()
    }

    fn config(&self, more: &[(&str, &str)]) -> ClientConfig {
        let mut c = ClientConfig::new();
        c.set("bootstrap.servers", &self.addresses).set("client.id", &self.name).set("reconnect.backoff.max.ms", "500");
        c.set("metadata.recovery.strategy", "none"); // as in py/confluent.py
        for (k, v) in more {
            c.set(*k, *v);
        }
        c
    }

    fn topic(&self, what: &str) -> String {
        format!("{}{}", self.name, what)
    }
}

fn until(mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + MINUTE;
    while Instant::now() < end {
        if ready() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    ready()
}

/// Repeats a call for as long as its error may be retried, at most for half a minute: a librdkafka whose only broker was gone may wait
/// for its coordinator for good, and another producer finds it.
fn retrying(mut call: impl FnMut() -> KafkaResult<()>) -> KafkaResult<()> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match call() {
            Err(KafkaError::Transaction(e)) if e.is_retriable() && Instant::now() < end => continue,
            other => return other,
        }
    }
}

/// Sends values and returns when all are acknowledged.
async fn send(producer: &FutureProducer, topic: &str, values: &[String], headers: Option<OwnedHeaders>) -> KafkaResult<()> {
    let mut deliveries = Vec::new();
    for v in values {
        let mut record = FutureRecord::to(topic).key(v).payload(v);
        if let Some(h) = &headers {
            record = record.headers(h.clone());
        }
        deliveries.push(producer.send_result(record).map_err(|(e, _)| e)?);
    }
    for d in deliveries {
        d.await.map_err(|_| KafkaError::Canceled)?.map_err(|(e, _)| e)?;
    }
    Ok(())
}

async fn admin(r: &Run) -> KafkaResult<()> {
    let a: AdminClient<DefaultClientContext> = r.config(&[]).create()?;
    let made = a.create_topics(&[NewTopic::new(&r.name, 2, TopicReplication::Fixed(r.replicas))], &AdminOptions::new()).await?;
    r.check("topic is created", made[0].is_ok(), &format!("{made:?}"));
    let listed = until(|| a.inner().fetch_metadata(None, MINUTE).is_ok_and(|m| m.topics().iter().any(|t| t.name() == r.name)));
    r.check("topic is listed", listed, "");
    Ok(())
}

async fn codecs(r: &Run) -> KafkaResult<()> {
    for codec in CODECS {
        let producer: FutureProducer = r.config(&[("compression.type", codec), ("linger.ms", "20")]).create()?;
        let values: Vec<String> = (0..PER_CODEC).map(|i| format!("{codec}{i}")).collect();
        let headers = OwnedHeaders::new().insert(Header { key: "h", value: Some("v") });
        let sent = send(&producer, &r.name, &values, Some(headers)).await;
        r.check(&format!("produced with {codec}"), sent.is_ok(), &format!("{sent:?}"));
    }
    let consumer: BaseConsumer = r.config(&[("group.id", &r.topic("-g")), ("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")]).create()?;
    consumer.subscribe(&[&r.name])?;
    let (mut seen, mut good) = (HashSet::new(), true);
    let end = Instant::now() + MINUTE;
    while seen.len() < PER_CODEC * CODECS.len() && Instant::now() < end {
        if let Some(Ok(m)) = consumer.poll(Duration::from_millis(500)) {
            good &= m.key() == m.payload() && m.headers().is_some_and(|h| h.count() == 1);
            seen.insert(m.key().unwrap_or_default().to_vec());
        }
    }
    r.check("group reads all, with keys, values and headers", good && seen.len() == PER_CODEC * CODECS.len(), &seen.len().to_string());
    consumer.commit_consumer_state(CommitMode::Sync)
}

async fn flow(r: &Run) -> KafkaResult<()> {
    let producer: FutureProducer = r.config(&[("enable.idempotence", "true")]).create()?;
    let mut n = 0;
    while !r.over() {
        let values: Vec<String> = (n..n + 20).map(|i| i.to_string()).collect();
        send(&producer, &r.topic("-flow"), &values, None).await?;
        println!("acked {}", values.join(" "));
        n += 20;
    }
    Ok(())
}

fn transactional(r: &Run) -> KafkaResult<FutureProducer> {
    let producer: FutureProducer = r.config(&[("transactional.id", &r.topic("-id")), ("transaction.timeout.ms", "30000")]).create()?;
    retrying(|| producer.init_transactions(CALL))?;
    Ok(producer)
}

async fn attempt(r: &Run, producer: &FutureProducer, group: &BaseConsumer, i: i64) -> KafkaResult<()> {
    producer.begin_transaction()?;
    let values: Vec<String> = (0..3).map(|k| format!("{i}/{k}")).collect();
    send(producer, &r.topic("-txn"), &values, None).await?;
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&r.topic("-flow"), 0, Offset::Offset(i + 1))?;
    let metadata = group.group_metadata().ok_or(KafkaError::Canceled)?;
    retrying(|| producer.send_offsets_to_transaction(&offsets, &metadata, CALL))?;
    if i % 2 == 0 {
        retrying(|| producer.commit_transaction(CALL))
    } else {
        retrying(|| producer.abort_transaction(CALL))
    }
}

async fn txn(r: &Run) -> KafkaResult<()> {
    let group: BaseConsumer = r.config(&[("group.id", &r.topic("-txn-g"))]).create()?;
    let mut producer = transactional(r)?;
    let mut i = 0;
    while !r.over() {
        match attempt(r, &producer, &group, i).await {
            Ok(()) => println!("{} {i}", if i % 2 == 0 { "committed" } else { "aborted" }),
            Err(e) => {
                println!("unknown {i} {e}");
                producer = loop {
                    match transactional(r) {
                        Ok(p) => break p,
                        Err(e) => println!("again {e}"),
                    }
                };
            }
        }
        i += 1;
    }
    Ok(())
}

/// Commits what was read and is not committed yet.
fn commit(consumer: &BaseConsumer) -> bool {
    match consumer.commit_consumer_state(CommitMode::Sync) {
        Ok(()) => true,
        Err(e) => e.rdkafka_error_code() == Some(RDKafkaErrorCode::NoOffset),
    }
}

fn group(r: &Run, mode: &str) -> KafkaResult<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut members = Vec::new();
    for i in 0..2 {
        let instance = format!("i{i}");
        let id = r.topic(&format!("-{mode}"));
        let mut more = vec![("group.id", id.as_str()), ("auto.offset.reset", "earliest"), ("auto.commit.interval.ms", "200"), ("session.timeout.ms", "10000"),
            ("heartbeat.interval.ms", "500"), ("partition.assignment.strategy", if mode == "cooperative" { "cooperative-sticky" } else { "range" })];
        if mode == "static" {
            more.push(("group.instance.id", &instance));
        }
        let consumer: BaseConsumer = r.config(&more).create()?;
        consumer.subscribe(&[&r.topic("-group")])?;
        let stop = stop.clone();
        members.push(std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                if let Some(Ok(m)) = consumer.poll(Duration::from_millis(100)) {
                    println!("read {i} {}", String::from_utf8_lossy(m.payload().unwrap_or_default()));
                }
            }
            until(|| commit(&consumer))
        }));
    }
    let _ = r.told.recv();
    stop.store(true, Ordering::SeqCst);
    for m in members {
        r.check("last commit", m.join().unwrap_or(false), "");
    }
    Ok(())
}

async fn end(r: &Run) -> KafkaResult<()> {
    let a: AdminClient<DefaultClientContext> = r.config(&[]).create()?;
    let groups = a.inner().fetch_group_list(Some(&r.topic("-g")), MINUTE)?;
    r.check("group is listed", groups.groups().len() == 1, "");
    let deleted = a.delete_topics(&[&r.name], &AdminOptions::new()).await?;
    r.check("topic is deleted", deleted[0].is_ok(), &format!("{deleted:?}"));
    Ok(())
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines() {
            let _ = tell.send(());
        }
    });
    let r = Run { addresses: args[1].clone(), name: args[2].clone(), replicas: args[3].parse().expect("replicas"), told, passed: AtomicU32::new(0), failed: AtomicU32::new(0) };
    for step in &args[4..] {
        println!("step {step}");
        let done = match step.split(':').next().unwrap_or_default() {
            "admin" => admin(&r).await,
            "codecs" => codecs(&r).await,
            "flow" => flow(&r).await,
            "txn" => txn(&r).await,
            "group" => group(&r, &step[6..]),
            _ => end(&r).await,
        };
        if let Err(e) = done {
            r.check(step, false, &e.to_string());
            break;
        }
    }
    println!("{} passed, {} failed", r.passed.load(Ordering::SeqCst), r.failed.load(Ordering::SeqCst));
    std::process::exit(if r.failed.load(Ordering::SeqCst) == 0 { 0 } else { 1 });
}
