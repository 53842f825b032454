"""txn_copy.py ADDRESS IN OUT NAME: copies topic IN to OUT, each message exactly once, with librdkafka.

Group and transactional id are NAME. Ends when its standard input does. What goes wrong is printed; the copier aborts and goes
on from the group's offsets, or with another producer if this one is of no use any more.

metadata.recovery.strategy is none: a librdkafka that begins anew when its only broker is gone (2.16) forgets its transaction
coordinator, and waits for it for good.
"""
import sys
import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

address, source, target, name = sys.argv[1:5]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()


def new_producer():
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "transaction.timeout.ms": 10000,
                         "reconnect.backoff.max.ms": 500, "linger.ms": 5, "metadata.recovery.strategy": "none"})
    retrying(producer.init_transactions)
    return producer


def retrying(step, *args):
    """Repeats a step for as long as its error may be retried."""
    while True:
        try:
            return step(*args)
        except KafkaException as e:
            if ended.is_set() or not e.args[0].retriable():
                raise
            print("again:", e.args[0].name(), flush=True)


def rewind(consumer):
    """Goes back to what the group has committed."""
    assigned = consumer.assignment()
    for p in retrying(consumer.committed, assigned, 10):
        consumer.seek(TopicPartition(p.topic, p.partition, max(p.offset, 0)))


consumer = Consumer({"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                     "isolation.level": "read_committed", "session.timeout.ms": 6000, "reconnect.backoff.max.ms": 500,
                     "metadata.recovery.strategy": "none"})
consumer.subscribe([source])
producer = None
while not ended.is_set():
    try:
        if producer is None:
            producer = new_producer()
        messages = [m for m in consumer.consume(40, 0.3) if m.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for m in messages:
            producer.produce(target, value=m.value(), key=m.key(), partition=m.partition())
        positions = consumer.position(consumer.assignment())
        retrying(producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata(), 15)
        retrying(producer.commit_transaction, 15)
    except (KafkaException, BufferError) as e:
        error = e.args[0]
        print("failed:", error, flush=True)
        if isinstance(e, KafkaException) and error.txn_requires_abort():
            try:
                retrying(producer.abort_transaction, 15)
            except KafkaException:
                producer = None
        else:
            producer = None
        try:
            rewind(consumer)
        except KafkaException as e:
            print("not rewound:", e, flush=True)
            consumer.unsubscribe()
            consumer.subscribe([source])
consumer.close()
