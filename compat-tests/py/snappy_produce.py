"""snappy_produce.py ADDRESS TOPIC PARTITION: sends each line of standard input with kafka-python, snappy in xerial frames."""
import sys

from kafka import KafkaProducer

address, topic, partition = sys.argv[1:4]
producer = KafkaProducer(bootstrap_servers=address, compression_type="snappy", linger_ms=500, batch_size=200000, acks="all")
futures = [producer.send(topic, value=line.encode(), partition=int(partition)) for line in sys.stdin.read().split("\n")]
producer.flush(30)
for future in futures:
    future.get(10)
producer.close()
