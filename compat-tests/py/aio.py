"""aiokafka as a program of the client matrix."""
import asyncio

import scenario as s
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

base = {"bootstrap_servers": s.addresses, "client_id": s.name}
COUNT = s.PER_CODEC * len(s.CODECS)
loop = asyncio.new_event_loop()


def sync(coroutine):
    """Runs what the client does to its end."""
    return loop.run_until_complete(coroutine)


async def with_admin(work):
    client = AIOKafkaAdminClient(**base)
    await client.start()
    try:
        return await work(client)
    finally:
        await client.close()


async def listed(client, there):
    """Kafka answers before a change can be seen."""
    for _ in range(600):
        if (s.name in await client.list_topics()) == there:
            return True
        await asyncio.sleep(0.05)
    return False


def admin():
    async def work(client):
        await client.create_topics([NewTopic(s.name, 2, s.replicas)])
        s.check("topic is listed", await listed(client, True))
    sync(with_admin(work))


async def started(kind, *args, **more):
    client = kind(*args, **base, **more)
    await client.start()
    return client


async def send(producer, topic, values, **more):
    sent = [await producer.send(topic, key=str(v).encode(), value=str(v).encode(), **more) for v in values]
    await asyncio.gather(*sent)


def codecs():
    async def work():
        for codec in s.CODECS:
            producer = await started(AIOKafkaProducer, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5)
            for p in range(2):
                await send(producer, s.name, ["%s-%d" % (codec, i) for i in range(p, s.PER_CODEC, 2)], partition=p, headers=[("h", b"1")])
            s.check("produced with " + codec, True)
            await producer.stop()
        consumer = await started(AIOKafkaConsumer, s.name, group_id=s.name + "-g", auto_offset_reset="earliest", enable_auto_commit=False)
        messages = []
        while len(messages) < COUNT:
            messages += [m for ms in (await asyncio.wait_for(consumer.getmany(timeout_ms=1000), 60)).values() for m in ms]
        await consumer.commit()
        s.check("committed", await consumer.committed(TopicPartition(s.name, 0)) == COUNT // 2)
        await consumer.stop()
        s.check("group reads all", len({(m.partition, m.offset) for m in messages}) == COUNT == len(messages), len(messages))
        s.check("keys, values, headers", all(m.value == m.key and list(m.headers) == [("h", b"1")] for m in messages))
        for p in range(2):
            s.check("order of partition %d" % p, [m.offset for m in messages if m.partition == p] == list(range(COUNT // 2)))
    sync(work())


def flow():
    producer = sync(started(AIOKafkaProducer, enable_idempotence=True, retry_backoff_ms=100, metadata_max_age_ms=5000, request_timeout_ms=120000))
    s.flow(lambda values: sync(send(producer, s.name + "-flow", values)))
    sync(producer.stop())


def txn():
    made = []

    def renew():
        for old in made:
            sync(old.stop())
        made[:] = [sync(started(AIOKafkaProducer, transactional_id=s.name + "-id", transaction_timeout_ms=30000, retry_backoff_ms=100))]

    async def transaction(i, values, commit):
        producer = made[0]
        await producer.begin_transaction()
        await send(producer, s.name + "-txn", values)
        await producer.send_offsets_to_transaction({TopicPartition(s.name + "-flow", 0): i + 1}, s.name + "-txn-g")
        await (producer.commit_transaction() if commit else producer.abort_transaction())

    renew()
    s.transactions(lambda *what: sync(transaction(*what)), renew)
    sync(made[0].stop())


def group(mode):
    async def member(i, stop):
        consumer = await started(AIOKafkaConsumer,
            s.name + "-group", group_id=s.name + "-" + mode, auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=10000,
            heartbeat_interval_ms=500, retry_backoff_ms=100, metadata_max_age_ms=5000, partition_assignment_strategy=[RangePartitionAssignor],
            group_instance_id="i%d" % i if mode == "static" else None)

        async def commit():
            try:
                await consumer.commit()
                return True
            except KafkaError:
                return False

        while not stop.is_set():
            messages = [m for ms in (await consumer.getmany(timeout_ms=200)).values() for m in ms]
            if messages:
                await commit()
            for m in messages:
                s.say("read", i, m.value.decode())
        s.check("last commit", await commit() or await commit() or await commit())
        await consumer.stop()

    async def work():
        stop = asyncio.Event()
        members = [asyncio.create_task(member(i, stop)) for i in range(2)]
        while not s.told():
            for m in members:
                if m.done():
                    m.result()
            await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*members)
    sync(work())


def end():
    async def work(client):
        s.check("group is listed", s.name + "-g" in [g[0] for g in await client.list_consumer_groups()])
        offsets = await client.list_consumer_group_offsets(s.name + "-g")
        s.check("offsets of the group", offsets[TopicPartition(s.name, 0)].offset == COUNT // 2, offsets)
        await client.create_partitions({s.name: NewPartitions(4)})
        await client.delete_topics([s.name])
        s.check("topic is deleted", await listed(client, False))
    sync(with_admin(work))


s.run(admin=admin, codecs=codecs, flow=flow, txn=txn, group=group, end=end)
