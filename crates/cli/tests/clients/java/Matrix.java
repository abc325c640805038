// What a program with Jedis does.
//
// arguments: PORT TLS_PORT MUTUAL_PORT FOLDER PROTOCOL, where FOLDER has the certificates.
// The report: `ok CASE`, `skip CASE: reason`, `FAIL CASE: reason`; last `done`.
// `restart` asks whoever started the program to kill the server and start it again; a line of input says that it is back.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.args.BitOP;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ClientKillParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

public final class Matrix {
    private static final long PATIENCE_MS = 60_000;
    private static int port;
    private static int tlsPort;
    private static int mutualPort;
    private static Path folder;
    private static RedisProtocol protocol;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private interface Body {
        void run() throws Exception;
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
        String text = fails(JedisDataException.class, body).getMessage();
        must(text.startsWith(beginning), "expected " + beginning + ", found " + text);
    }

    private static void until(String what, Condition condition) throws Exception {
        long end = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!condition.holds()) {
            must(System.nanoTime() < end, what + " did not come about");
            Thread.sleep(2);
        }
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static DefaultJedisClientConfig.Builder config() {
        return DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis((int) PATIENCE_MS);
    }

    private static JedisPooled pool(int connections, DefaultJedisClientConfig config) {
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(connections);
        pool.setMaxIdle(connections);
        return new JedisPooled(pool, new HostAndPort("127.0.0.1", port), config);
    }

    private static JedisPooled pool() {
        return pool(8, config().build());
    }

    private static Jedis single() {
        return new Jedis(new HostAndPort("127.0.0.1", port), config().build());
    }

    private static void connect() {
        try (Jedis client = new Jedis(new HostAndPort("127.0.0.1", port), config().clientName("matrix").build())) {
            same(client.flushAll(), "OK");
            same(client.ping(), "PONG");
            String info = client.clientInfo();
            must(info.contains("name=matrix ") && info.contains("lib-name=jedis"), info);
            must(info.contains(protocol == RedisProtocol.RESP3 ? "resp=3" : "resp=2"), info);
            same(client.set("word", "stone"), "OK");
            same(client.get("word"), "stone");
            same(client.get("absent"), null);
            same(client.mget("word", "absent"), Arrays.asList("stone", null));
        }
    }

    private static void callers(JedisPooled client) throws Exception {
        List<Thread> threads = new ArrayList<>();
        AtomicLong failures = new AtomicLong();
        for (int number = 0; number < 16; number++) {
            String key = "caller:" + number;
            threads.add(new Thread(() -> {
                for (int round = 0; round < 50; round++) {
                    client.incr("count");
                    client.set(key, Integer.toString(round));
                    if (!Integer.toString(round).equals(client.get(key))) {
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
        same(client.get("count"), "800");
        client.del("count");
    }

    private static void pipeline() {
        try (JedisPooled client = pool(); Pipeline pipeline = client.pipelined()) {
            pipeline.set("text", "no number");
            Response<Long> wrong = pipeline.incr("text");
            List<Response<String>> found = new ArrayList<>();
            for (int number = 0; number < 1_000; number++) {
                pipeline.set("piped:" + number, Integer.toString(number));
                found.add(pipeline.get("piped:" + number));
            }
            pipeline.sync();
            for (int number = 0; number < 1_000; number++) {
                same(found.get(number).get(), Integer.toString(number));
            }
            try {
                wrong.get();
                must(false, "a text was counted up");
            } catch (JedisDataException error) {
                must(error.getMessage().startsWith("ERR value is not an integer"), error.getMessage());
            }
        }
    }

    private static void transaction() throws Exception {
        try (JedisPooled client = pool()) {
            try (AbstractTransaction transaction = client.multi()) {
                transaction.set("{t}:a", "1");
                Response<Long> count = transaction.incr("{t}:a");
                transaction.set("elsewhere", "x");
                same(transaction.exec().size(), 3);
                same(count.get(), 2L);
            }
            try (AbstractTransaction transaction = client.multi()) {
                transaction.set("{t}:a", "9");
                transaction.sendCommand(() -> "nonsense".getBytes(), "x");
                fails(JedisDataException.class, transaction::exec);
            }
            same(client.get("{t}:a"), "2");
        }
    }

    private static void watch() {
        try (JedisPooled client = pool(); JedisPooled other = pool()) {
            try (AbstractTransaction transaction = client.transaction(false)) {
                transaction.watch("watched");
                other.set("watched", "10");
                transaction.multi();
                transaction.set("watched", "1");
                same(transaction.exec(), null);
            }
            try (AbstractTransaction transaction = client.transaction(false)) {
                transaction.watch("watched");
                transaction.multi();
                transaction.set("watched", "11");
                same(transaction.exec(), List.of("OK"));
            }
            same(other.get("watched"), "11");
        }
    }

    /** Messages in their order, and how many subscriptions there are. */
    private static final class Heard extends JedisPubSub {
        final BlockingQueue<String> all = new LinkedBlockingQueue<>();
        final AtomicLong subscriptions = new AtomicLong();

        @Override
        public void onMessage(String channel, String text) {
            all.add(channel + " " + text);
        }

        @Override
        public void onPMessage(String pattern, String channel, String text) {
            all.add(pattern + " " + channel + " " + text);
        }

        @Override
        public void onSubscribe(String channel, int count) {
            subscriptions.incrementAndGet();
        }

        @Override
        public void onPSubscribe(String pattern, int count) {
            subscriptions.incrementAndGet();
        }

        void is(String expected) throws Exception {
            same(all.poll(PATIENCE_MS, TimeUnit.MILLISECONDS), expected);
        }
    }

    private static void channels() throws Exception {
        try (Jedis client = single(); Jedis other = single()) {
            Heard heard = new Heard();
            Thread listener = new Thread(() -> client.subscribe(heard, "news", "weather"));
            listener.start();
            until("a subscription", () -> heard.subscriptions.get() == 2);
            same(other.publish("news", "one"), 1L);
            same(other.publish("weather", "two"), 1L);
            heard.is("news one");
            heard.is("weather two");
            heard.unsubscribe();
            listener.join();
            same(other.publish("news", "three"), 0L);
        }
    }

    private static void patterns() throws Exception {
        try (Jedis client = single(); Jedis other = single()) {
            Heard heard = new Heard();
            Thread listener = new Thread(() -> client.psubscribe(heard, "old*"));
            listener.start();
            until("a subscription", () -> heard.subscriptions.get() == 1);
            same(other.publish("older", "one"), 1L);
            heard.is("old* older one");
            heard.punsubscribe();
            listener.join();
        }
    }

    private static void binary() {
        try (JedisPooled client = pool()) {
            byte[] all = new byte[256];
            for (int at = 0; at < all.length; at++) {
                all[at] = (byte) at;
            }
            same(client.set(all, all), "OK");
            must(Arrays.equals(client.get(all), all), "the value has changed");
            must(Arrays.equals(client.getrange(all, 10, 14), Arrays.copyOfRange(all, 10, 15)), "the range is another");
            same(client.set("", ""), "OK");
            same(client.get(""), "");
        }
    }

    private static void big() {
        try (JedisPooled client = pool()) {
            ByteBuffer value = ByteBuffer.allocate(8 << 20);
            while (value.hasRemaining()) {
                value.putInt((int) (value.position() * 2_654_435_761L));
            }
            byte[] key = "big".getBytes();
            same(client.set(key, value.array()), "OK");
            same(client.strlen("big"), (long) value.capacity());
            must(Arrays.equals(client.get(key), value.array()), "the value has changed");
            same(client.del("big"), 1L);
        }
    }

    private static void scan() {
        try (JedisPooled client = pool()) {
            List<String> pairs = new ArrayList<>();
            for (int number = 0; number < 2_000; number++) {
                pairs.add("scanned:" + number);
                pairs.add(Integer.toString(number));
            }
            same(client.mset(pairs.toArray(new String[0])), "OK");
            Set<String> found = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page = client.scan(cursor, new ScanParams().match("scanned:*").count(100));
                found.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            same(found.size(), 2_000);
        }
    }

    private static void expiry() throws Exception {
        try (JedisPooled client = pool()) {
            same(client.set("brief", "x", SetParams.setParams().ex(100)), "OK");
            long left = client.ttl("brief");
            must(left > 0 && left <= 100, left + " s are left");
            same(client.persist("brief"), 1L);
            same(client.ttl("brief"), -1L);
            same(client.ttl("absent"), -2L);
            same(client.pexpireAt("brief", 1), 1L);
            same(client.get("brief"), null);
            same(client.set("brief", "y", SetParams.setParams().px(20)), "OK");
            until("the end of a key", () -> client.get("brief") == null);
        }
    }

    private static void bits() {
        try (JedisPooled client = pool()) {
            same(client.setbit("bits", 7, true), false);
            same(client.getbit("bits", 7), true);
            same(client.bitcount("bits"), 1L);
            same(client.bitpos("bits", true), 7L);
            same(client.bitop(BitOP.NOT, "inverse", "bits"), 1L);
            same(client.bitcount("inverse"), 7L);
            same(client.bitfield("bits", "INCRBY", "u8", "0", "300"), List.of(45L));
        }
    }

    private static SSLContext context(String roots, String own) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (FileInputStream file = new FileInputStream(folder.resolve(roots).toFile())) {
            trusted.setCertificateEntry("root", factory.generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyManagerFactory keys = null;
        if (own != null) {
            String text = Files.readString(folder.resolve(own + ".key")).replaceAll("-----[A-Z ]+-----|\\s", "");
            PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text));
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            try (FileInputStream file = new FileInputStream(folder.resolve(own + ".pem").toFile())) {
                Certificate[] chain = {factory.generateCertificate(file)};
                store.setKeyEntry("own", KeyFactory.getInstance("EC").generatePrivate(encoded), new char[0], chain);
            }
            keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(store, new char[0]);
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys == null ? null : keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Jedis overTls(int port, String host, String roots, String own) throws Exception {
        SSLParameters parameters = new SSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        DefaultJedisClientConfig config = config().ssl(true).sslSocketFactory(context(roots, own).getSocketFactory())
            .sslParameters(parameters).build();
        return new Jedis(new HostAndPort(host, port), config);
    }

    private static void tls() throws Exception {
        try (Jedis client = overTls(tlsPort, "localhost", "ca.pem", null)) {
            same(client.set("secret", "word"), "OK");
            same(client.get("secret"), "word");
        }
        fails(JedisConnectionException.class, () -> overTls(tlsPort, "localhost", "stranger.pem", null).ping());
        // The certificate names localhost and 127.0.0.1 only.
        fails(JedisConnectionException.class, () -> overTls(tlsPort, "127.0.0.2", "ca.pem", null).ping());
    }

    private static void mutualTls() throws Exception {
        try (Jedis friend = overTls(mutualPort, "localhost", "ca.pem", "friend")) {
            same(friend.ping(), "PONG");
        }
        fails(JedisConnectionException.class, () -> overTls(mutualPort, "localhost", "ca.pem", null).ping());
        fails(JedisConnectionException.class, () -> overTls(mutualPort, "localhost", "ca.pem", "foe").ping());
    }

    private static void users() throws Exception {
        try (Jedis client = single()) {
            client.aclSetUser("reader", "reset", "on", ">pass", "~open:*", "+@read", "+@connection");
            client.mset("open:a", "1", "closed:a", "2");
        }
        try (JedisPooled reader = pool(1, config().user("reader").password("pass").build())) {
            same(reader.get("open:a"), "1");
            fails(JedisAccessControlException.class, () -> reader.get("closed:a"));
            fails(JedisAccessControlException.class, () -> reader.set("open:a", "2"));
        }
    }

    private static void wrongPassword() throws Exception {
        fails(JedisAccessControlException.class, () -> {
            DefaultJedisClientConfig config = config().user("reader").password("wrong").build();
            try (Jedis client = new Jedis(new HostAndPort("127.0.0.1", port), config)) {
                client.ping();
            }
        });
    }

    private static void errors() throws Exception {
        try (Jedis client = single()) {
            client.set("text", "no number");
            refused("ERR value is not an integer", () -> client.incr("text"));
            refused("ERR wrong number of arguments", () -> client.sendCommand(Protocol.Command.GET));
            refused("ERR unknown command", () -> client.sendCommand(() -> "nonsense".getBytes(), "x"));
            refused("ERR offset is out of range", () -> client.setrange("text", -1, "x"));
            refused("ERR DB index is out of range", () -> client.select(100_000));
            same(client.get("text"), "no number");
        }
    }

    private static void kill() throws Exception {
        try (JedisPooled client = pool(1, config().build()); Jedis other = single()) {
            client.ping();
            long own = other.clientId();
            other.clientKill(new ClientKillParams().type(redis.clients.jedis.args.ClientType.NORMAL)
                .skipMe(ClientKillParams.SkipMe.YES));
            same(other.clientId(), own);
            // The pool finds out with the next command, and makes a new connection for the one after it.
            until("a new connection", () -> {
                try {
                    return "OK".equals(client.set("after", "kill"));
                } catch (JedisConnectionException error) {
                    return false;
                }
            });
            same(client.get("after"), "kill");
        }
    }

    private static void restart() throws Exception {
        try (JedisPooled client = pool()) {
            AtomicBoolean isBack = new AtomicBoolean();
            AtomicLong last = new AtomicLong();
            Set<Long> acknowledged = new ConcurrentSkipListSet<>();
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < 8; number++) {
                threads.add(new Thread(() -> {
                    while (!isBack.get()) {
                        long next = last.incrementAndGet();
                        try {
                            client.set("kept:" + next, Long.toString(next));
                            acknowledged.add(next);
                        } catch (JedisConnectionException error) {
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
            until("the pool's recovery", () -> {
                try {
                    return client.ping() != null;
                } catch (JedisConnectionException error) {
                    return false;
                }
            });
            for (long number : acknowledged) {
                same(client.get("kept:" + number), Long.toString(number));
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

    public static void main(String[] arguments) {
        port = Integer.parseInt(arguments[0]);
        tlsPort = Integer.parseInt(arguments[1]);
        mutualPort = Integer.parseInt(arguments[2]);
        folder = Path.of(arguments[3]);
        protocol = arguments[4].equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        one("connect", Matrix::connect);
        one("pool", () -> {
            try (JedisPooled client = pool()) {
                callers(client);
            }
        });
        one("concurrent callers", () -> {
            try (JedisPooled client = pool(1, config().build())) {
                callers(client);
            }
        });
        one("pipeline", Matrix::pipeline);
        one("transaction", Matrix::transaction);
        one("watch", Matrix::watch);
        one("channels", Matrix::channels);
        one("patterns", Matrix::patterns);
        System.out.println("skip sharded: the client subscribes to sharded channels of a cluster only");
        one("binary", Matrix::binary);
        one("big", Matrix::big);
        one("scan", Matrix::scan);
        one("expiry", Matrix::expiry);
        one("bits", Matrix::bits);
        one("tls", Matrix::tls);
        one("mutual tls", Matrix::mutualTls);
        one("users", Matrix::users);
        one("wrong password", Matrix::wrongPassword);
        one("errors", Matrix::errors);
        one("kill", Matrix::kill);
        one("restart", Matrix::restart);
        System.out.println("done");
        System.exit(0);
    }
}
