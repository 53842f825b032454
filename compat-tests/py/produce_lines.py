"""produce_lines.py ADDRESS TOPIC PARTITION FILE: sends each line of a file with kafka-python, idempotent, and waits for all of them."""
import sys

from kafka import KafkaProducer

address, topic, partition, path = sys.argv[1:5]
producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True, acks="all", batch_size=200000, max_block_ms=120000)
with open(path, encoding="ascii") as f:
    futures = [producer.send(topic, value=line.rstrip("\n").encode(), partition=int(partition)) for line in f]
producer.flush(120)
for future in futures:
    future.get(1)
producer.close()
