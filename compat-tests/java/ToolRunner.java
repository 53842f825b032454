import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the main methods of Kafka's command line tools one after the other in one JVM, so that a command costs a tenth of a
 * second and not the start of a JVM.
 *
 * <p>Arguments: the jar of the tools (its classes are loaded afresh for each command, because some tools count in static
 * fields). Each line on standard input is a JSON object {"class", "args", "stdin", "timeoutMs", "outFile"}; each is answered
 * by one line {"exit", "out", "err", "timeout"}; with an outFile standard output goes there. A tool that calls System.exit has ended with that code; its thread is parked for
 * good, so that nothing after the call runs, and the shutdown hooks that it added are run, as a JVM would. Needs
 * -Djava.security.manager=allow and --add-opens java.base/java.lang=ALL-UNNAMED (to see the hooks).
 */
public final class ToolRunner {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ToolRunner() {
    }

    /** Ends a command's future when the tool calls exit or halt, and parks the caller. */
    private static final class ExitTrap extends SecurityManager {
        private volatile CompletableFuture<Integer> current;

        @Override
        public void checkPermission(Permission permission) {
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
        }

        @Override
        public void checkExit(int status) {
            CompletableFuture<Integer> future = current;
            if (future == null) {
                return;
            }
            future.complete(status);
            while (true) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException e) {
                    // Parked for good: an exit never returns.
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        URL[] tools = {new File(args[0]).toURI().toURL()};
        PrintStream answers = System.out;
        InputStream commands = System.in;
        ExitTrap trap = new ExitTrap();
        System.setSecurityManager(trap);
        BufferedReader reader = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            String answer = JSON.writeValueAsString(run(JSON.readTree(line), tools, trap));
            answers.write((answer + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        trap.current = null;
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(JsonNode command, URL[] tools, ExitTrap trap) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream savedOut = System.out;
        PrintStream savedErr = System.err;
        Set<Thread> hooksBefore = new HashSet<>(hooks().keySet());
        CompletableFuture<Integer> exit = new CompletableFuture<>();
        boolean timedOut = false;
        int code = -1;
        String outFile = command.path("outFile").asText("");
        OutputStream sink = outFile.isEmpty() ? out : new BufferedOutputStream(new FileOutputStream(outFile), 1 << 20);
        try (PrintStream toolOut = new PrintStream(sink, outFile.isEmpty(), "UTF-8");
             PrintStream toolErr = new PrintStream(err, true, "UTF-8")) {
            System.setIn(new ByteArrayInputStream(command.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
            System.setOut(toolOut);
            System.setErr(toolErr);
            trap.current = exit;
            start(command, tools, exit);
            try {
                code = exit.get(command.path("timeoutMs").asLong(60_000), TimeUnit.MILLISECONDS);
            } catch (TimeoutException e) {
                timedOut = true;
            }
            runNewHooks(hooksBefore);
        } finally {
            System.setOut(savedOut);
            System.setErr(savedErr);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", code);
        answer.put("timeout", timedOut);
        answer.put("out", out.toString("UTF-8"));
        answer.put("err", err.toString("UTF-8"));
        return answer;
    }

    private static void start(JsonNode command, URL[] tools, CompletableFuture<Integer> exit) {
        String[] args = new String[command.path("args").size()];
        for (int i = 0; i < args.length; i++) {
            args[i] = command.path("args").get(i).asText();
        }
        String name = command.path("class").asText();
        // Not closed: threads that the tool left running may still load classes.
        URLClassLoader loader = new URLClassLoader(tools, ToolRunner.class.getClassLoader());
        Thread thread = new Thread(() -> {
            try {
                loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) args);
                exit.complete(0);
            } catch (InvocationTargetException e) {
                e.getCause().printStackTrace();
                exit.complete(1);
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                exit.complete(127);
            }
        }, "main");
        thread.setDaemon(true);
        thread.setContextClassLoader(loader);
        thread.start();
    }

    @SuppressWarnings("unchecked")
    private static Map<Thread, Thread> hooks() throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        Object hooks = field.get(null);
        return hooks == null ? new IdentityHashMap<>() : (Map<Thread, Thread>) hooks;
    }

    private static void runNewHooks(Set<Thread> before) throws ReflectiveOperationException, InterruptedException {
        for (Thread hook : new HashSet<>(hooks().keySet())) {
            if (before.contains(hook)) {
                continue;
            }
            Runtime.getRuntime().removeShutdownHook(hook);
            hook.setDaemon(true);
            hook.start();
            hook.join(5_000);
        }
    }
}
