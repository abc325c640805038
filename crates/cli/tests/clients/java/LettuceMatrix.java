// What a program with Lettuce does: one connection for many callers, and futures.
//
// Arguments, report and `restart` are those of Matrix.java.

import io.lettuce.core.AclCategory;
import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.BitFieldArgs;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.KillArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.SslOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.Delay;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

public final class LettuceMatrix {
    private static final long PATIENCE_MS = 60_000;
    private static final ClientResources RESOURCES =
        ClientResources.builder().reconnectDelay(Delay.constant(Duration.ofMillis(50))).build();
    private static int port;
    private static int tlsPort;
    private static int mutualPort;
    private static Path folder;
    private static ProtocolVersion protocol;
    private static RedisClient client;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private interface Body {
        void run() throws Exception;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void must(boolean condition, String otherwise) {
        if (!condition) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static void same(Object found, Object expected) {
        must(expected == null ? found == null : expected.equals(found), "found " + found + ", expected " + expected);
    }

    private static <E extends Exception> E fails(Class<E> kind, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception error) {
            must(kind.isInstance(error), "an error of another kind: " + error);
            return kind.cast(error);
        }
        throw new IllegalStateException("it did not fail");
    }

    private static void refused(String beginning, Body body) throws Exception {
        String text = fails(RedisCommandExecutionException.class, body).getMessage();
        must(text.startsWith(beginning), "expected " + beginning + ", found " + text);
    }

    private static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!condition.holds()) {
            must(System.nanoTime() < end, what + " did not come about");
            Thread.sleep(2);
        }
    }

    private static RedisURI.Builder uri(String host, int port) {
        return RedisURI.builder().withHost(host).withPort(port).withTimeout(Duration.ofMillis(PATIENCE_MS));
    }

    private static RedisClient client(RedisURI uri, SslOptions ssl) {
        RedisClient made = RedisClient.create(RESOURCES, uri);
        made.setOptions(ClientOptions.builder().protocolVersion(protocol).sslOptions(ssl)
            .timeoutOptions(TimeoutOptions.enabled())
            .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS).build());
        return made;
    }

    private static void connect() {
        RedisClient named = client(uri("127.0.0.1", port).withClientName("matrix").build(), SslOptions.create());
        try (StatefulRedisConnection<String, String> connection = named.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            same(sync.flushall(), "OK");
            same(sync.ping(), "PONG");
            String info = sync.clientInfo();
            must(info.contains("name=matrix ") && info.contains("lib-name=Lettuce"), info);
            must(info.contains(protocol == ProtocolVersion.RESP3 ? "resp=3" : "resp=2"), info);
            same(sync.set("word", "stone"), "OK");
            same(sync.get("word"), "stone");
            same(sync.get("absent"), null);
            same(sync.mget("word", "absent").get(1).hasValue(), false);
        }
        named.shutdown(0, 0, TimeUnit.MILLISECONDS);
    }

    private static void callers() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            List<Thread> threads = new ArrayList<>();
            AtomicLong failures = new AtomicLong();
            for (int number = 0; number < 16; number++) {
                String key = "caller:" + number;
                threads.add(new Thread(() -> {
                    for (int round = 0; round < 50; round++) {
                        connection.sync().incr("count");
                        connection.sync().set(key, Integer.toString(round));
                        if (!Integer.toString(round).equals(connection.sync().get(key))) {
                            failures.incrementAndGet();
                        }
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            same(failures.get(), 0L);
            same(connection.sync().get("count"), "800");
            connection.sync().del("count");
        }
    }

    private static void pipeline() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            connection.setAutoFlushCommands(false);
            connection.async().set("text", "no number");
            RedisFuture<Long> wrong = connection.async().incr("text");
            List<RedisFuture<String>> found = new ArrayList<>();
            for (int number = 0; number < 1_000; number++) {
                connection.async().set("piped:" + number, Integer.toString(number));
                found.add(connection.async().get("piped:" + number));
            }
            connection.flushCommands();
            for (int number = 0; number < 1_000; number++) {
                same(found.get(number).get(PATIENCE_MS, TimeUnit.MILLISECONDS), Integer.toString(number));
            }
            must(wrong.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "no answer");
            must(wrong.getError().startsWith("ERR value is not an integer"), wrong.getError());
        }
    }

    private static void transaction() {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            same(sync.multi(), "OK");
            sync.set("{t}:a", "1");
            sync.incr("{t}:a");
            sync.set("elsewhere", "x");
            TransactionResult result = sync.exec();
            same(result.size(), 3);
            same(result.get(1), 2L);
            same(sync.multi(), "OK");
            sync.set("{t}:a", "9");
            same(sync.discard(), "OK");
            same(sync.get("{t}:a"), "2");
        }
    }

    private static void watch() {
        try (StatefulRedisConnection<String, String> connection = client.connect();
            StatefulRedisConnection<String, String> other = client.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            sync.watch("watched");
            other.sync().set("watched", "10");
            sync.multi();
            sync.set("watched", "1");
            same(sync.exec().wasDiscarded(), true);
            sync.watch("watched");
            sync.multi();
            sync.set("watched", "11");
            same(sync.exec().wasDiscarded(), false);
            same(other.sync().get("watched"), "11");
        }
    }

    /** Messages in their order. */
    private static final class Heard extends RedisPubSubAdapter<String, String> {
        final BlockingQueue<String> all = new LinkedBlockingQueue<>();

        @Override
        public void message(String channel, String text) {
            all.add(channel + " " + text);
        }

        @Override
        public void message(String pattern, String channel, String text) {
            all.add(pattern + " " + channel + " " + text);
        }

        @Override
        public void smessage(String channel, String text) {
            all.add("sharded " + channel + " " + text);
        }

        void is(String expected) throws Exception {
            same(all.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), expected);
        }
    }

    private static void channels() throws Exception {
        try (StatefulRedisPubSubConnection<String, String> connection = client.connectPubSub();
            StatefulRedisConnection<String, String> other = client.connect()) {
            Heard heard = new Heard();
            connection.addListener(heard);
            connection.sync().subscribe("news", "weather");
            Map<String, Long> both = Map.of("news", 1L, "weather", 1L);
            until("a subscription", () -> other.sync().pubsubNumsub("news", "weather").equals(both));
            same(other.sync().publish("news", "one"), 1L);
            same(other.sync().publish("weather", "two"), 1L);
            heard.is("news one");
            heard.is("weather two");
            connection.sync().unsubscribe("news", "weather");
            until("an end", () -> other.sync().publish("news", "three") == 0);
        }
    }

    private static void patterns() throws Exception {
        try (StatefulRedisPubSubConnection<String, String> connection = client.connectPubSub();
            StatefulRedisConnection<String, String> other = client.connect()) {
            Heard heard = new Heard();
            connection.addListener(heard);
            connection.sync().psubscribe("old*");
            until("a subscription", () -> other.sync().pubsubNumpat() == 1);
            same(other.sync().publish("older", "one"), 1L);
            heard.is("old* older one");
        }
    }

    private static void sharded() throws Exception {
        try (StatefulRedisPubSubConnection<String, String> connection = client.connectPubSub();
            StatefulRedisConnection<String, String> other = client.connect()) {
            Heard heard = new Heard();
            connection.addListener(heard);
            connection.sync().ssubscribe("part");
            until("a subscription", () -> other.sync().pubsubShardNumsub("part").equals(Map.of("part", 1L)));
            same(other.sync().spublish("part", "one"), 1L);
            heard.is("sharded part one");
        }
    }

    private static void cache() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect();
            StatefulRedisConnection<String, String> other = client.connect()) {
            Map<String, String> copies = new ConcurrentHashMap<>();
            other.sync().set("cached", "1");
            try (CacheFrontend<String, String> cache = ClientSideCaching.enable(
                CacheAccessor.forMap(copies), connection, TrackingArgs.Builder.enabled())) {
                same(cache.get("cached"), "1");
                same(copies.get("cached"), "1");
                other.sync().set("cached", "2");
                until("an invalidation", () -> copies.get("cached") == null);
                same(cache.get("cached"), "2");
            }
        }
    }

    private static void binary() {
        try (StatefulRedisConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE)) {
            byte[] all = new byte[256];
            for (int at = 0; at < all.length; at++) {
                all[at] = (byte) at;
            }
            same(connection.sync().set(all, all), "OK");
            must(Arrays.equals(connection.sync().get(all), all), "the value has changed");
            byte[] range = connection.sync().getrange(all, 10, 14);
            must(Arrays.equals(range, Arrays.copyOfRange(all, 10, 15)), "the range is another");
            same(connection.sync().set(new byte[0], new byte[0]), "OK");
            same(connection.sync().get(new byte[0]).length, 0);
        }
    }

    private static void big() {
        try (StatefulRedisConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE)) {
            ByteBuffer value = ByteBuffer.allocate(8 << 20);
            while (value.hasRemaining()) {
                value.putInt((int) (value.position() * 2_654_435_761L));
            }
            byte[] key = "big".getBytes();
            same(connection.sync().set(key, value.array()), "OK");
            same(connection.sync().strlen(key), (long) value.capacity());
            must(Arrays.equals(connection.sync().get(key), value.array()), "the value has changed");
            same(connection.sync().del(key), 1L);
        }
    }

    private static void scan() {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            Map<String, String> pairs = new HashMap<>();
            for (int number = 0; number < 2_000; number++) {
                pairs.put("scanned:" + number, Integer.toString(number));
            }
            same(connection.sync().mset(pairs), "OK");
            Set<String> found = new HashSet<>();
            ScanArgs arguments = ScanArgs.Builder.limit(100).match("scanned:*");
            ScanIterator.scan(connection.sync(), arguments).forEachRemaining(found::add);
            same(found, pairs.keySet());
        }
    }

    private static void expiry() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            same(sync.set("brief", "x", SetArgs.Builder.ex(100)), "OK");
            long left = sync.ttl("brief");
            must(left > 0 && left <= 100, left + " s are left");
            same(sync.persist("brief"), true);
            same(sync.ttl("brief"), -1L);
            same(sync.ttl("absent"), -2L);
            same(sync.pexpireat("brief", 1), true);
            same(sync.get("brief"), null);
            same(sync.set("brief", "y", SetArgs.Builder.px(20)), "OK");
            until("the end of a key", () -> sync.get("brief") == null);
        }
    }

    private static void bits() {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            same(sync.setbit("bits", 7, 1), 0L);
            same(sync.getbit("bits", 7), 1L);
            same(sync.bitcount("bits"), 1L);
            same(sync.bitpos("bits", true), 7L);
            same(sync.bitopNot("inverse", "bits"), 1L);
            same(sync.bitcount("inverse"), 7L);
            BitFieldArgs arguments = BitFieldArgs.Builder.incrBy(BitFieldArgs.unsigned(8), 0, 300);
            same(sync.bitfield("bits", arguments), List.of(45L));
        }
    }

    private static String overTls(int port, String host, String roots, String own) {
        SslOptions.Builder options = SslOptions.builder().jdkSslProvider().trustManager(folder.resolve(roots).toFile());
        if (own != null) {
            options.keyManager(folder.resolve(own + ".pem").toFile(), folder.resolve(own + ".key").toFile(), null);
        }
        RedisURI uri = uri(host, port).withSsl(true).withVerifyPeer(true).build();
        RedisClient sealed = client(uri, options.build());
        try (StatefulRedisConnection<String, String> connection = sealed.connect()) {
            connection.sync().set("secret", "word");
            return connection.sync().get("secret");
        } finally {
            sealed.shutdown(0, 0, TimeUnit.MILLISECONDS);
        }
    }

    private static void tls() throws Exception {
        same(overTls(tlsPort, "localhost", "ca.pem", null), "word");
        fails(RedisConnectionException.class, () -> overTls(tlsPort, "localhost", "stranger.pem", null));
        // The certificate names localhost and 127.0.0.1 only.
        fails(RedisConnectionException.class, () -> overTls(tlsPort, "127.0.0.2", "ca.pem", null));
    }

    private static void mutualTls() throws Exception {
        same(overTls(mutualPort, "localhost", "ca.pem", "friend"), "word");
        fails(RedisException.class, () -> overTls(mutualPort, "localhost", "ca.pem", null));
        fails(RedisException.class, () -> overTls(mutualPort, "localhost", "ca.pem", "foe"));
    }

    private static void users() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            connection.sync().aclSetuser("reader", AclSetuserArgs.Builder.reset().on().addPassword("pass")
                .keyPattern("open:*").addCategory(AclCategory.READ).addCategory(AclCategory.CONNECTION));
            connection.sync().mset(Map.of("open:a", "1", "closed:a", "2"));
        }
        RedisURI uri = uri("127.0.0.1", port).withAuthentication("reader", "pass".toCharArray()).build();
        RedisClient reader = client(uri, SslOptions.create());
        try (StatefulRedisConnection<String, String> connection = reader.connect()) {
            same(connection.sync().get("open:a"), "1");
            refused("NOPERM", () -> connection.sync().get("closed:a"));
            refused("NOPERM", () -> connection.sync().set("open:a", "2"));
        }
        reader.shutdown(0, 0, TimeUnit.MILLISECONDS);
    }

    private static void wrongPassword() throws Exception {
        RedisURI uri = uri("127.0.0.1", port).withAuthentication("reader", "wrong".toCharArray()).build();
        RedisClient wrong = client(uri, SslOptions.create());
        Throwable error = refusal(wrong);
        for (int again = 0; again < 20 && overtaken(error); again++) {
            error = refusal(wrong);
        }
        must(error.getMessage().startsWith("WRONGPASS"), error.toString());
        wrong.shutdown(0, 0, TimeUnit.MILLISECONDS);
    }

    private static Throwable refusal(RedisClient wrong) throws Exception {
        Throwable error = fails(RedisConnectionException.class, wrong::connect);
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return error;
    }

    /**
     * A race within Lettuce: it closes a channel whose handshake was refused, and where its own
     * thread that connects looks for the handshake only afterwards, it says that there is none
     * instead of what the server said. Nobody is let in; the reason is asked for again.
     */
    private static boolean overtaken(Throwable error) {
        return error instanceof IllegalStateException
            && "RedisHandshakeHandler not registered".equals(error.getMessage());
    }

    private static void errors() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            RedisCommands<String, String> sync = connection.sync();
            sync.set("text", "no number");
            refused("ERR value is not an integer", () -> sync.incr("text"));
            refused("ERR offset is out of range", () -> sync.setrange("text", -1, "x"));
            refused("ERR unknown command", () -> sync.lpush("text", "x"));
            refused("ERR DB index is out of range", () -> sync.select(100_000));
            same(sync.get("text"), "no number");
        }
    }

    private static void kill() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect();
            StatefulRedisConnection<String, String> other = client.connect()) {
            connection.sync().ping();
            must(other.sync().clientKill(KillArgs.Builder.typeNormal().skipme()) > 0, "nobody was killed");
            until("a new connection", () -> {
                try {
                    return "OK".equals(connection.sync().set("after", "kill"));
                } catch (RedisException error) {
                    return false;
                }
            });
            same(connection.sync().get("after"), "kill");
        }
    }

    private static void restart() throws Exception {
        try (StatefulRedisConnection<String, String> connection = client.connect()) {
            AtomicBoolean isBack = new AtomicBoolean();
            AtomicLong last = new AtomicLong();
            Set<Long> acknowledged = new ConcurrentSkipListSet<>();
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < 8; number++) {
                threads.add(new Thread(() -> {
                    while (!isBack.get()) {
                        long next = last.incrementAndGet();
                        try {
                            connection.sync().set("kept:" + next, Long.toString(next));
                            acknowledged.add(next);
                        } catch (RedisException error) {
                            // It was not acknowledged.
                        }
                    }
                }));
            }
            threads.forEach(Thread::start);
            until("some writing", () -> acknowledged.size() > 100);
            System.out.println("restart");
            same(INPUT.readLine(), "ready");
            isBack.set(true);
            for (Thread thread : threads) {
                thread.join();
            }
            until("a new connection", () -> {
                try {
                    return connection.sync().ping() != null;
                } catch (RedisException error) {
                    return false;
                }
            });
            for (long number : acknowledged) {
                same(connection.sync().get("kept:" + number), Long.toString(number));
            }
        }
    }

    private static void one(String name, Body body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Exception error) {
            System.out.println("FAIL " + name + ": " + error.toString().replace('\n', ' ') + " at " + error.getStackTrace()[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        tlsPort = Integer.parseInt(arguments[1]);
        mutualPort = Integer.parseInt(arguments[2]);
        folder = Path.of(arguments[3]);
        protocol = arguments[4].equals("3") ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
        client = client(uri("127.0.0.1", port).build(), SslOptions.create());
        one("connect", LettuceMatrix::connect);
        one("concurrent callers", LettuceMatrix::callers);
        one("pipeline", LettuceMatrix::pipeline);
        one("transaction", LettuceMatrix::transaction);
        one("watch", LettuceMatrix::watch);
        one("channels", LettuceMatrix::channels);
        one("patterns", LettuceMatrix::patterns);
        one("sharded", LettuceMatrix::sharded);
        if (protocol == ProtocolVersion.RESP3) {
            one("cache", LettuceMatrix::cache);
        } else {
            System.out.println("skip cache: the client hears of stale copies in protocol 3 only");
        }
        one("binary", LettuceMatrix::binary);
        one("big", LettuceMatrix::big);
        one("scan", LettuceMatrix::scan);
        one("expiry", LettuceMatrix::expiry);
        one("bits", LettuceMatrix::bits);
        one("tls", LettuceMatrix::tls);
        one("mutual tls", LettuceMatrix::mutualTls);
        one("users", LettuceMatrix::users);
        one("wrong password", LettuceMatrix::wrongPassword);
        one("errors", LettuceMatrix::errors);
        one("kill", LettuceMatrix::kill);
        one("restart", LettuceMatrix::restart);
        System.out.println("done");
        System.exit(0);
    }
}
