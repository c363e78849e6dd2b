package redislock.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README's program. */
class ReadmeTest {
    private static final String PROGRAM = """
        import java.time.Duration;
        import java.util.concurrent.CompletableFuture;
        import java.util.concurrent.locks.Lock;
        import java.util.function.Function;
        import reactor.core.publisher.Mono;
        import redislock.*;

        abstract class Program {
            interface Job {
                void cancel();
            }

            abstract void write(long fence);

            abstract int work() throws Exception;

            void run(Job job, LockSpec door, Function<Hold, Mono<Integer>> work) throws Exception {
                %s
            }
        }
        """;

    @Test
    void programCompiles(@TempDir Path folder) throws Exception {
        String block = Files.readString(Path.of("../README.md")).split("```java\n")[1].split("```")[0];
        Path file = Files.writeString(folder.resolve("Program.java"), PROGRAM.formatted(block));
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> found = new DiagnosticCollector<>();
        try (StandardJavaFileManager files = compiler.getStandardFileManager(found, null, null)) {
            List<String> options = List.of("-d", folder.toString(), "-classpath",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
            compiler.getTask(null, files, found, options, null, files.getJavaFileObjects(file)).call();
        }
        assertEquals(List.of(), found.getDiagnostics());
    }
}
