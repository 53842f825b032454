import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * kafka-clients as a program of the client matrix (compat-tests/doc.go has the command line and the lines that are printed), written
 * for every release from 2.1 on.
 */
public final class ClientScenario {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int PER_CODEC = 100;
    private static final int COUNT = PER_CODEC * CODECS.length;
    private static int passed;
    private static int failed;
    private final String addresses;
    private final String name;
    private final short replicas;
    private final AdminClient admin;

    private ClientScenario(String addresses, String name, short replicas) {
        this.addresses = addresses;
        this.name = name;
        this.replicas = replicas;
        this.admin = AdminClient.create(properties());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static synchronized void check(String what, boolean ok, Object detail) {
        if (ok) {
            passed++;
            say("ok " + what);
        } else {
            failed++;
            say("FAILED " + what + ": " + detail);
        }
    }

    /** Whether the step is to end. */
    private static boolean told() throws Exception {
        if (System.in.available() == 0) {
            return false;
        }
        while (System.in.read() != '\n') {
            continue;
        }
        return true;
    }

    private Properties properties(String... more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", addresses);
        for (String side : new String[] {"key", "value"}) {
            p.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            p.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        p.put("reconnect.backoff.max.ms", "500");
        for (int i = 0; i < more.length; i += 2) {
            p.put(more[i], more[i + 1]);
        }
        return p;
    }

    private void codecs() throws Exception {
        for (String codec : CODECS) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties("acks", "all", "compression.type", codec, "linger.ms", "5"))) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < PER_CODEC; i++) {
                    sent.add(producer.send(new ProducerRecord<>(name, i % 2, codec + i, codec + i, Collections.singletonList(new RecordHeader("h", new byte[] {1})))));
                }
                for (Future<RecordMetadata> f : sent) {
                    f.get();
                }
                check("produced with " + codec, true, null);
            }
        }
        List<ConsumerRecord<String, String>> got = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                properties("group.id", name + "-g", "auto.offset.reset", "earliest", "enable.auto.commit", "false"))) {
            consumer.subscribe(Collections.singletonList(name));
            long end = System.nanoTime() + 120_000_000_000L;
            while (got.size() < COUNT && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(500))) {
                    got.add(r);
                }
            }
            consumer.commitSync();
        }
        boolean ordered = true;
        long[] next = new long[2];
        for (ConsumerRecord<String, String> r : got) {
            ordered &= r.offset() == next[r.partition()]++ && r.value().equals(r.key()) && r.headers().toArray().length == 1;
        }
        check("group reads all in order, with keys, values and headers", ordered && got.size() == COUNT, got.size());
        Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(name + "-g").partitionsToOffsetAndMetadata().get();
        check("committed", offsets.get(new TopicPartition(name, 0)).offset() == COUNT / 2, offsets);
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String... values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            sent.add(producer.send(new ProducerRecord<>(topic, value, value)));
        }
        for (Future<RecordMetadata> f : sent) {
            f.get();
        }
    }

    private void flow() throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties("acks", "all", "enable.idempotence", "true"))) {
            for (int n = 0; !told(); n += 20) {
                String[] values = new String[20];
                for (int i = 0; i < 20; i++) {
                    values[i] = "" + (n + i);
                }
                send(producer, name + "-flow", values);
                say("acked " + String.join(" ", values));
            }
        }
    }

    private KafkaProducer<String, String> transactional() {
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties("transactional.id", name + "-id", "transaction.timeout.ms", "30000"));
        producer.initTransactions();
        return producer;
    }

    private void txn() throws Exception {
        KafkaProducer<String, String> producer = transactional();
        for (int i = 0; !told(); i++) {
            try {
                producer.beginTransaction();
                send(producer, name + "-txn", i + "/0", i + "/1", i + "/2");
                sendOffsets(producer, Collections.singletonMap(new TopicPartition(name + "-flow", 0), new OffsetAndMetadata(i + 1)));
                if (i % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                say((i % 2 == 0 ? "committed " : "aborted ") + i);
            } catch (KafkaException | ExecutionException e) {
                say("unknown " + i + " " + e);
                producer.close();
                producer = transactional();
            }
        }
        producer.close();
    }

    /** The offsets go with the group's name until 3.x, and with its metadata from then on. */
    private void sendOffsets(KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception {
        try {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            Method m = KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata);
            m.invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(name + "-txn-g"));
        } catch (ClassNotFoundException | NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, name + "-txn-g");
        } catch (java.lang.reflect.InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }

    private volatile boolean stop;

    private void member(String mode, int i) {
        String assignor = mode.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
        Properties p = properties("group.id", name + "-" + mode, "auto.offset.reset", "earliest", "enable.auto.commit", "false", "session.timeout.ms", "10000",
                "heartbeat.interval.ms", "500", "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        if (mode.equals("static")) {
            p.put("group.instance.id", "i" + i);
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(Collections.singletonList(name + "-group"));
            while (!stop) {
                boolean some = false;
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                    say("read " + i + " " + r.value());
                    some = true;
                }
                if (some) {
                    try {
                        consumer.commitSync();
                    } catch (KafkaException e) { // the group rebalances: what is not committed is read again
                        say("not committed: " + e);
                    }
                }
            }
            consumer.commitSync();
            check("last commit", true, null);
        } catch (Exception e) {
            check("member " + i, false, e);
        }
    }

    private void group(String mode) throws Exception {
        stop = false;
        List<Thread> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            int member = i;
            members.add(new Thread(() -> member(mode, member)));
            members.get(i).start();
        }
        while (!told()) {
            Thread.sleep(20);
        }
        stop = true;
        for (Thread t : members) {
            t.join();
        }
    }

    private boolean listed(boolean there) throws Exception {
        for (int i = 0; i < 600; i++) {
            if (admin.listTopics().names().get().contains(name) == there) {
                return true;
            }
            Thread.sleep(50);
        }
        return false;
    }

    private void admin() throws Exception {
        admin.createTopics(Arrays.asList(new NewTopic(name, 2, replicas))).all().get();
        check("topic is listed", listed(true), null);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        String retention = null;
        for (int i = 0; i < 600 && retention == null; i++) {
            try { // another node may not know the topic yet
                retention = admin.describeConfigs(Collections.singletonList(resource)).all().get().get(resource).get("retention.ms").value();
            } catch (ExecutionException e) {
                Thread.sleep(50);
            }
        }
        check("configs are described", "604800000".equals(retention), retention);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + admin.describeCluster().controller().get().id());
        check("broker is described", admin.describeConfigs(Collections.singletonList(broker)).all().get().get(broker).get("num.partitions") != null, null);
    }

    private void end() throws Exception {
        String group = name + "-g";
        check("group is described", admin.describeConsumerGroups(Collections.singletonList(group)).all().get().get(group).members().isEmpty(), null);
        admin.deleteConsumerGroups(Collections.singletonList(group)).all().get();
        Map<String, NewPartitions> grow = new HashMap<>();
        grow.put(name, NewPartitions.increaseTo(4));
        admin.createPartitions(grow).all().get();
        check("partitions are added", true, null);
        Collection<String> topics = Collections.singletonList(name);
        admin.deleteTopics(topics).all().get();
        check("topic is deleted", listed(false), null);
        try {
            admin.deleteTopics(topics).all().get();
            check("an unknown topic is refused", false, "it was deleted");
        } catch (ExecutionException e) {
            check("an unknown topic is refused", e.getCause().getClass().getSimpleName().equals("UnknownTopicOrPartitionException"), e);
        }
    }

    private void step(String step) throws Exception {
        say("step " + step);
        String[] parts = step.split(":");
        switch (parts[0]) {
            case "admin": admin(); break;
            case "codecs": codecs(); break;
            case "flow": flow(); break;
            case "txn": txn(); break;
            case "group": group(parts[1]); break;
            case "end": end(); break;
            default: throw new IllegalArgumentException(step);
        }
    }

    public static void main(String[] args) throws Exception {
        ClientScenario s = new ClientScenario(args[0], args[1], Short.parseShort(args[2]));
        for (String step : Arrays.asList(args).subList(3, args.length)) {
            s.step(step);
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
