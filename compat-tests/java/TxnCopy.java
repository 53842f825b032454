import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * TxnCopy ADDRESS IN OUT NAME: copies topic IN to OUT, each message exactly once, with Kafka's own clients. Group and
 * transactional id are NAME. Ends when its standard input does. After a failure it aborts and goes on from the group's
 * offsets; if that fails, too, with another producer.
 */
public final class TxnCopy {
    private TxnCopy() {
    }

    private static Properties settings(String address) {
        Properties p = new Properties();
        p.put("bootstrap.servers", address);
        p.put("reconnect.backoff.max.ms", "500");
        p.put("request.timeout.ms", "5000");
        p.put("default.api.timeout.ms", "20000");
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        return p;
    }

    private static KafkaProducer<String, String> producer(String address, String name) {
        Properties p = settings(address);
        p.put("transactional.id", name);
        p.put("transaction.timeout.ms", "10000");
        p.put("max.block.ms", "20000");
        p.put("delivery.timeout.ms", "20000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(p);
        try {
            producer.initTransactions();
        } catch (RuntimeException e) {
            producer.close(Duration.ZERO);
            throw e;
        }
        return producer;
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition tp : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(tp);
            consumer.seek(tp, at == null ? 0 : at.offset());
        }
    }

    public static void main(String[] args) throws Exception {
        String address = args[0], source = args[1], target = args[2], name = args[3];
        AtomicBoolean ended = new AtomicBoolean();
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                System.out.println("standard input: " + e);
            }
            ended.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        Properties p = settings(address);
        p.put("group.id", name);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        p.put("isolation.level", "read_committed");
        p.put("session.timeout.ms", "6000");
        p.put("max.poll.records", "40");
        KafkaProducer<String, String> producer = null;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(List.of(source));
            boolean back = false;
            while (!ended.get()) {
                try {
                    if (producer == null) {
                        producer = producer(address, name);
                    }
                    if (back) {
                        rewind(consumer);
                        back = false;
                    }
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(300));
                    if (records.isEmpty()) {
                        continue;
                    }
                    back = true;
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                    for (ConsumerRecord<String, String> r : records) {
                        producer.send(new ProducerRecord<>(target, r.partition(), r.key(), r.value()));
                        next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                    producer.commitTransaction();
                    back = false;
                } catch (KafkaException e) {
                    System.out.println("failed: " + e);
                    if (producer != null) {
                        try {
                            producer.abortTransaction();
                        } catch (RuntimeException worse) {
                            System.out.println("not aborted: " + worse);
                            producer.close(Duration.ZERO);
                            producer = null;
                        }
                    }
                }
            }
        }
        System.exit(0);
    }
}
