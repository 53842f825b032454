import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.kafka.autoconfigure.KafkaProperties;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Primary;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.MessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.KafkaHeaders;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;

/**
 * SpringScenario ADDRESS NAME REPLICAS: a Spring Boot application with Spring Kafka against a broker. NAME is a prefix for topics,
 * groups and transactional ids. One line is printed per check. After the checks it streams records to itself, one each few
 * milliseconds, and prints "streamed N" for each hundred that its listener has got; it ends when all have arrived.
 */
public class SpringScenario {
    private static final int RECORDS = 300;
    private static final int STREAMED = 1500;
    private static int passed;
    private static int failed;

    private final Set<String> plain = ConcurrentHashMap.newKeySet();
    private final Set<Integer> plainPartitions = ConcurrentHashMap.newKeySet();
    private final ConcurrentLinkedQueue<String> badHeaders = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<List<String>> batches = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> committed = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> attempts = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> dead = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> outputs = new ConcurrentLinkedQueue<>();
    private final Set<String> streamed = ConcurrentHashMap.newKeySet();

    @Value("${scenario.name}")
    private String name;
    @Value("${scenario.replicas}")
    private int replicas;

    private static void check(String what, boolean ok, Object detail) {
        if (ok) {
            passed++;
            System.out.println("ok " + what);
        } else {
            failed++;
            System.out.println("FAILED " + what + ": " + detail);
        }
    }

    /** await checks that something becomes true within three minutes. */
    private static void await(String what, BooleanSupplier ready, Object detail) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(180);
        while (!ready.getAsBoolean() && System.nanoTime() < end) {
            TimeUnit.MILLISECONDS.sleep(20);
        }
        check(what, ready.getAsBoolean(), detail);
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("scenario.name", args[1]);
        p.put("scenario.replicas", args[2]);
        p.put("spring.main.banner-mode", "off");
        p.put("logging.level.root", "ERROR");
        p.put("spring.kafka.bootstrap-servers", args[0]);
        p.put("spring.kafka.admin.fail-fast", "true");
        p.put("spring.kafka.consumer.auto-offset-reset", "earliest");
        p.put("spring.kafka.consumer.isolation-level", "read_committed");
        p.put("spring.kafka.consumer.properties.session.timeout.ms", "10000");
        p.put("spring.kafka.producer.acks", "all");
        p.put("spring.kafka.producer.compression-type", "zstd");
        SpringApplication app = new SpringApplication(Beans.class);
        app.setDefaultProperties(p);
        try (ConfigurableApplicationContext context = app.run()) {
            context.getBean(SpringScenario.class).run(context);
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }

    @KafkaListener(id = "plain", topics = "${scenario.name}-plain", groupId = "${scenario.name}-plain", concurrency = "3")
    void plain(ConsumerRecord<String, String> r) {
        plain.add(r.key() + "=" + r.value());
        plainPartitions.add(r.partition());
        var h = r.headers().lastHeader("h");
        if (h == null || !new String(h.value(), StandardCharsets.UTF_8).equals("header of " + r.key())) {
            badHeaders.add(r.key());
        }
    }

    @KafkaListener(id = "batch", topics = "${scenario.name}-batch", groupId = "${scenario.name}-batch", batch = "true",
        properties = "group.instance.id=one", autoStartup = "false")
    void batch(List<String> values) {
        batches.add(values);
    }

    @KafkaListener(id = "tx", topics = "${scenario.name}-tx", groupId = "${scenario.name}-tx")
    void tx(String value) {
        committed.add(value);
    }

    @RetryableTopic(attempts = "3", backOff = @BackOff(delay = 200), numPartitions = "1", replicationFactor = "${scenario.replicas}")
    @KafkaListener(id = "retried", topics = "${scenario.name}-retried", groupId = "${scenario.name}-retried")
    void retried(String value, @Header(KafkaHeaders.RECEIVED_TOPIC) String topic) {
        attempts.add(topic.substring(name.length()) + ":" + value);
        if (value.startsWith("bad")) {
            throw new IllegalStateException("cannot take " + value);
        }
    }

    @DltHandler
    void dead(String value, @Header(KafkaHeaders.RECEIVED_TOPIC) String topic) {
        dead.add(topic.substring(name.length()) + ":" + value);
    }

    @KafkaListener(id = "eos", topics = "${scenario.name}-in", groupId = "${scenario.name}-in", containerFactory = "exactlyOnce")
    @SendTo("${scenario.name}-out")
    String eos(String value) {
        return "made of " + value;
    }

    @KafkaListener(id = "out", topics = "${scenario.name}-out", groupId = "${scenario.name}-out")
    void out(String value) {
        outputs.add(value);
    }

    @KafkaListener(id = "asked", topics = "${scenario.name}-ask", groupId = "${scenario.name}-ask", containerFactory = "replying")
    @SendTo
    String asked(String value) {
        return value + "!";
    }

    @KafkaListener(id = "stream", topics = "${scenario.name}-stream", groupId = "${scenario.name}-stream", concurrency = "3")
    void stream(String value) {
        if (streamed.add(value) && streamed.size() % 100 == 0) {
            System.out.println("streamed " + streamed.size());
        }
    }

    private void run(ConfigurableApplicationContext context) throws Exception {
        @SuppressWarnings("unchecked")
        KafkaTemplate<String, String> template = context.getBean("template", KafkaTemplate.class);
        @SuppressWarnings("unchecked")
        KafkaTemplate<String, String> transactional = context.getBean("transactional", KafkaTemplate.class);
        admin(context.getBean(KafkaAdmin.class));
        plainRecords(template);
        batchListener(template, context.getBean(KafkaListenerEndpointRegistry.class));
        transactions(transactional);
        retries(template);
        exactlyOnceListener(template);
        @SuppressWarnings("unchecked")
        ReplyingKafkaTemplate<String, String, String> asking = context.getBean("asking", ReplyingKafkaTemplate.class);
        asking.waitForAssignment(Duration.ofSeconds(60));
        var answer = asking.sendAndReceive(new ProducerRecord<>(name + "-ask", "are you there")).get(60, TimeUnit.SECONDS);
        check("request and reply", "are you there!".equals(answer.value()), answer);
        streamThrough(template);
    }

    private void admin(KafkaAdmin admin) throws InterruptedException {
        var described = admin.describeTopics(name + "-plain", name + "-tx");
        check("topics are made at start", described.get(name + "-plain").partitions().size() == 3 && described.get(name + "-tx").partitions().size() == 2, described);
        boolean replicated = described.values().stream().flatMap(d -> d.partitions().stream()).allMatch(p -> p.replicas().size() == replicas);
        check("with their replicas", replicated, described);
        admin.createOrModifyTopics(TopicBuilder.name(name + "-batch").partitions(2).replicas(replicas).build());
        // A busy Kafka shows the topic as it was for a moment.
        await("partitions are added", () -> admin.describeTopics(name + "-batch").get(name + "-batch").partitions().size() == 2, name);
        check("the cluster has an id", admin.clusterId() != null && admin.clusterId().length() == 22, admin.clusterId());
    }

    private void plainRecords(KafkaTemplate<String, String> template) throws Exception {
        Set<String> want = new TreeSet<>();
        List<Long> offsets = new ArrayList<>();
        for (int i = 0; i < RECORDS; i++) {
            ProducerRecord<String, String> r = new ProducerRecord<>(name + "-plain", "k" + i, "v" + i);
            r.headers().add("h", ("header of k" + i).getBytes(StandardCharsets.UTF_8));
            offsets.add(template.send(r).get(60, TimeUnit.SECONDS).getRecordMetadata().offset());
            want.add("k" + i + "=v" + i);
        }
        check("sends are acknowledged with offsets", offsets.stream().allMatch(o -> o >= 0), offsets);
        await("a listener of three threads gets all", () -> plain.equals(want), plain.size() + " of " + want.size());
        check("from three partitions", plainPartitions.size() == 3, plainPartitions);
        check("with their headers", badHeaders.isEmpty(), badHeaders);
    }

    private void batchListener(KafkaTemplate<String, String> template, KafkaListenerEndpointRegistry registry) throws Exception {
        for (int i = 0; i < 50; i++) {
            template.send(name + "-batch", 0, null, "b" + i).get(60, TimeUnit.SECONDS);
        }
        MessageListenerContainer container = registry.getListenerContainer("batch");
        container.start();
        await("a static member gets batches", () -> batches.stream().mapToInt(List::size).sum() == 50, batches);
        check("in few calls", batches.size() < 50, batches.size());
        container.stop();
        template.send(name + "-batch", 0, null, "after").get(60, TimeUnit.SECONDS);
        container.start();
        await("after a stop and a start the rest only", () -> batches.stream().mapToInt(List::size).sum() == 51, batches);
    }

    private void transactions(KafkaTemplate<String, String> template) throws Exception {
        template.executeInTransaction(t -> {
            t.send(name + "-tx", 0, "a", "committed 1");
            t.send(name + "-tx", 1, "b", "committed 2");
            return true;
        });
        try {
            template.executeInTransaction(t -> {
                t.send(name + "-tx", 0, "a", "aborted");
                t.flush();
                throw new IllegalStateException("on purpose");
            });
            check("the exception comes out", false, "none");
        } catch (IllegalStateException e) {
            check("the exception comes out", "on purpose".equals(e.getMessage()), e);
        }
        template.executeInTransaction(t -> t.send(name + "-tx", 0, "c", "committed 3"));
        await("committed records are read, aborted ones are not", () -> new TreeSet<>(committed).equals(new TreeSet<>(List.of("committed 1", "committed 2", "committed 3"))), committed);
    }

    private void retries(KafkaTemplate<String, String> template) throws Exception {
        template.send(name + "-retried", "bad one").get(60, TimeUnit.SECONDS);
        template.send(name + "-retried", "good one").get(60, TimeUnit.SECONDS);
        await("a failing record ends in the dead letter topic", () -> List.copyOf(dead).equals(List.of("-retried-dlt:bad one")), dead);
        Map<String, Integer> counts = new TreeMap<>();
        attempts.forEach(a -> counts.merge(a.replaceAll("-retry.*:", "-retry:"), 1, Integer::sum));
        check("after two retries", counts.equals(Map.of("-retried:bad one", 1, "-retried-retry:bad one", 2, "-retried:good one", 1)), counts);
    }

    private void exactlyOnceListener(KafkaTemplate<String, String> template) throws Exception {
        List<String> want = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            template.send(name + "-in", i % 2, null, "in " + i).get(60, TimeUnit.SECONDS);
            want.add("made of in " + i);
        }
        await("a listener in transactions sends on all", () -> outputs.size() >= want.size(), outputs.size());
        List<String> got = new ArrayList<>(outputs);
        got.sort(null);
        want.sort(null);
        check("each once", got.equals(want), got);
    }

    private void streamThrough(KafkaTemplate<String, String> template) throws Exception {
        var sends = new ArrayList<CompletableFuture<?>>();
        for (int i = 0; i < STREAMED; i++) {
            sends.add(template.send(name + "-stream", "s" + i));
            TimeUnit.MILLISECONDS.sleep(3);
        }
        int lost = 0;
        for (var s : sends) {
            try {
                s.get(120, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException e) {
                lost++;
                System.out.println("not sent: " + e);
            }
        }
        check("everything is acknowledged", lost == 0, lost);
        await("and arrives", () -> streamed.size() == STREAMED, streamed.size() + " of " + STREAMED);
    }

    /** Topics, producers and containers; a class of its own, since the listeners need them while they are made. */
    @Configuration
    @EnableAutoConfiguration
    @Import(SpringScenario.class)
    static class Beans {
        @Value("${scenario.name}")
        private String name;
        @Value("${scenario.replicas}")
        private int replicas;

        @Bean
        KafkaAdmin.NewTopics topics() {
            return new KafkaAdmin.NewTopics(
                TopicBuilder.name(name + "-plain").partitions(3).replicas(replicas).config("retention.ms", "7200000").build(),
                TopicBuilder.name(name + "-batch").partitions(1).replicas(replicas).build(),
                TopicBuilder.name(name + "-tx").partitions(2).replicas(replicas).compact().build(),
                TopicBuilder.name(name + "-retried").partitions(1).replicas(replicas).build(),
                TopicBuilder.name(name + "-in").partitions(2).replicas(replicas).build(),
                TopicBuilder.name(name + "-out").partitions(2).replicas(replicas).build(),
                TopicBuilder.name(name + "-ask").partitions(1).replicas(replicas).build(),
                TopicBuilder.name(name + "-answer").partitions(1).replicas(replicas).build(),
                TopicBuilder.name(name + "-stream").partitions(3).replicas(replicas).build());
        }

        @Bean
        ProducerFactory<String, String> transactionalProducers(ProducerFactory<?, ?> plainProducers) {
            DefaultKafkaProducerFactory<String, String> f = new DefaultKafkaProducerFactory<>(producerConfigs(plainProducers));
            f.setTransactionIdPrefix(name + "-tx-");
            return f;
        }

        @Bean
        @Primary
        ProducerFactory<String, String> plainProducers(KafkaProperties properties) {
            return new DefaultKafkaProducerFactory<>(properties.buildProducerProperties());
        }

        private static Map<String, Object> producerConfigs(ProducerFactory<?, ?> f) {
            Map<String, Object> configs = new HashMap<>(f.getConfigurationProperties());
            configs.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 20_000);
            return configs;
        }

        @Bean
        @Primary
        KafkaTemplate<String, String> template(@Qualifier("plainProducers") ProducerFactory<String, String> f) {
            return new KafkaTemplate<>(f);
        }

        @Bean
        KafkaTemplate<String, String> transactional(@Qualifier("transactionalProducers") ProducerFactory<String, String> f) {
            return new KafkaTemplate<>(f);
        }

        /** A listener's records, what it sends and its offsets are one transaction. */
        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> exactlyOnce(ConsumerFactory<String, String> consumers,
                @Qualifier("transactionalProducers") ProducerFactory<String, String> producers,
                @Qualifier("transactional") KafkaTemplate<String, String> replies) {
            ConcurrentKafkaListenerContainerFactory<String, String> f = new ConcurrentKafkaListenerContainerFactory<>();
            f.setConsumerFactory(consumers);
            f.setReplyTemplate(replies);
            f.getContainerProperties().setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
            f.getContainerProperties().setEosMode(ContainerProperties.EOSMode.V2);
            return f;
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<String, String> replying(ConsumerFactory<String, String> consumers, KafkaTemplate<String, String> replies) {
            ConcurrentKafkaListenerContainerFactory<String, String> f = new ConcurrentKafkaListenerContainerFactory<>();
            f.setConsumerFactory(consumers);
            f.setReplyTemplate(replies);
            return f;
        }

        @Bean
        ReplyingKafkaTemplate<String, String, String> asking(ProducerFactory<String, String> producers,
                @Qualifier("replying") ConcurrentKafkaListenerContainerFactory<String, String> containers) {
            var replies = containers.createContainer(name + "-answer");
            replies.getContainerProperties().setGroupId(name + "-answers");
            return new ReplyingKafkaTemplate<>(producers, replies);
        }
    }
}
