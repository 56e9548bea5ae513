import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;
import org.json.JSONArray;
import org.json.JSONObject;

/** One operation with Qpid JMS, by the contract in ../README.md: {@code Client OPERATION JSON}. */
public final class Client {
    private static final Pattern CONDITION = Pattern.compile("\\[condition = ([^\\]]+)\\]");
    private static final int INDIVIDUAL_ACKNOWLEDGE = 101;
    private static final Map<String, Integer> ACK_TYPES =
            Map.of("accept", 1, "reject", 2, "release", 3, "modify", 5);

    private final JSONObject request;
    private final PrintStream out;
    private final long endsAt;
    private final CountDownLatch failed = new CountDownLatch(1);

    private Client(JSONObject request, PrintStream out) {
        this.request = request;
        this.out = out;
        this.endsAt = System.nanoTime() + (long) (request.optDouble("timeout_s", 20) * 1e9);
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(new JSONObject(arguments[1]), System.out);
        client.run(arguments[0]);
        client.say("done", Map.of());
        System.exit(0);
    }

    private synchronized void say(String event, Map<String, ?> more) {
        JSONObject line = new JSONObject(more);
        line.put("event", event);
        out.println(line);
        out.flush();
    }

    private void run(String operation) throws Exception {
        Connection connection;
        try {
            connection = factory().createConnection();
        } catch (JMSException error) {
            fail("transport", error);
            return;
        }
        ((JmsConnection) connection).addConnectionListener(new Listener());
        try {
            connection.start();
            say("opened", Map.of("properties", Map.of()));
            switch (operation) {
                case "connect" -> hold();
                case "send" -> send(connection);
                case "receive" -> receive(connection);
                case "browse" -> browse(connection);
                case "unsubscribe" -> unsubscribe(connection);
                default -> throw new IllegalArgumentException("no such operation: " + operation);
            }
        } catch (JMSException error) {
            fail("link", error);
        }
        try {
            connection.close();
        } catch (JMSException error) {
            fail("connection", error);
        }
    }

    private JmsConnectionFactory factory() throws Exception {
        List<String> options = new ArrayList<>();
        boolean hasUser = request.has("user");
        options.add("amqp.saslMechanisms=" + (hasUser ? "PLAIN" : "ANONYMOUS"));
        options.add("jms.prefetchPolicy.all=" + request.optInt("credit", 100));
        options.add("jms.connectTimeout=" + (long) (request.optDouble("timeout_s", 20) * 1000));
        options.add("jms.requestTimeout=" + (long) (request.optDouble("timeout_s", 20) * 1000));
        if (request.has("idle_timeout_ms")) options.add("amqp.idleTimeout=" + request.getInt("idle_timeout_ms"));
        if (request.has("max_frame_size")) options.add("amqp.maxFrameSize=" + request.getInt("max_frame_size"));
        if (request.optBoolean("settled")) options.add("jms.presettlePolicy.presettleAll=true");
        JmsConnectionFactory factory =
                new JmsConnectionFactory(request.getString("url") + "?" + String.join("&", options));
        if (hasUser) {
            factory.setUsername(request.getString("user"));
            factory.setPassword(request.getString("password"));
        }
        if (request.has("container_id")) factory.setClientID(request.getString("container_id"));
        if (request.has("ca")) factory.setSslContext(trusting(Path.of(request.getString("ca"))));
        return factory;
    }

    private static SSLContext trusting(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    private void hold() throws InterruptedException {
        failed.await((long) (request.optDouble("hold_s", 0) * 1000), TimeUnit.MILLISECONDS);
    }

    private void send(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        JSONArray forms = forms();
        Outcomes outcomes = new Outcomes(forms.length());
        boolean isAnonymous = request.isNull("address");
        Queue queue = isAnonymous ? null : session.createQueue(request.getString("address"));
        MessageProducer producer = session.createProducer(queue);
        say("attached", Map.of("is_refused", false, "properties", Map.of()));
        for (int index = 0; index < forms.length(); index++) {
            JSONObject form = forms.getJSONObject(index);
            Message message = Messages.of(session, form);
            int mode = form.optBoolean("durable", true) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
            CompletionListener listener = outcomes.of(index);
            if (isAnonymous) {
                Queue to = session.createQueue(form.getJSONObject("properties").getString("to"));
                producer.send(to, message, mode, Message.DEFAULT_PRIORITY, 0, listener);
            } else {
                producer.send(message, mode, Message.DEFAULT_PRIORITY, 0, listener);
            }
        }
        if (outcomes.all.await(endsAt - System.nanoTime(), TimeUnit.NANOSECONDS)) {
            say("sent", outcomes.counts);
            hold();
        } else {
            say("timeout", Map.of());
        }
    }

    private JSONArray forms() {
        if (request.has("messages")) return request.getJSONArray("messages");
        JSONArray forms = new JSONArray();
        JSONObject form = request.has("message") ? request.getJSONObject("message") : new JSONObject();
        for (int count = request.optInt("count", 1); count > 0; count--) forms.put(form);
        return forms;
    }

    private void receive(Connection connection) throws Exception {
        Session session = connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
        MessageConsumer consumer = consumer(session);
        say("attached", Map.of("is_refused", false, "properties", Map.of()));
        if (request.optBoolean("drain")) {
            int received = 0;
            for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
                received++;
                tell(message);
            }
            say("drained", Map.of("received", received));
            return;
        }
        int count = request.optInt("count", 1);
        for (int received = 0; received < count; received++) {
            Message message = consumer.receive(Math.max(1, (endsAt - System.nanoTime()) / 1_000_000));
            if (message == null) {
                if (failed.getCount() > 0) say("timeout", Map.of());
                return;
            }
            tell(message);
        }
        say("received", Map.of("count", count));
        hold();
    }

    private void browse(Connection connection) throws Exception {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        QueueBrowser browser = session.createBrowser(session.createQueue(request.getString("address")), selector());
        int received = 0;
        for (Enumeration<?> found = browser.getEnumeration(); found.hasMoreElements(); received++)
            say("message", Messages.shown((Message) found.nextElement()));
        say("drained", Map.of("received", received));
    }

    private MessageConsumer consumer(Session session) throws JMSException {
        String address = request.getString("address");
        if (!request.has("subscription")) return session.createConsumer(session.createQueue(address), selector());
        String name = request.getString("subscription");
        if (request.optBoolean("shared"))
            return session.createSharedDurableConsumer(session.createTopic(address), name, selector());
        return session.createDurableConsumer(session.createTopic(address), name, selector(), false);
    }

    private void unsubscribe(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        session.unsubscribe(request.getString("subscription"));
        say("unsubscribed", Map.of());
    }

    /** The value of the one filter that JMS has: a selector. */
    private String selector() {
        JSONArray filters = request.optJSONArray("filters");
        if (filters == null) return null;
        return filters.getJSONObject(0).getString("value");
    }

    private void tell(Message message) throws Exception {
        if (!request.optBoolean("quiet")) say("message", Messages.shown(message));
        String outcome = request.optString("outcome", "accept");
        if (outcome.equals("none")) return;
        message.setIntProperty("JMS_AMQP_ACK_TYPE", ACK_TYPES.get(outcome));
        message.acknowledge();
    }

    private void fail(String scope, Throwable error) {
        if (failed.getCount() == 0) return;
        failed.countDown();
        String actual = scope;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof JMSSecurityException) actual = "sasl";
            if (cause instanceof SSLException) actual = "tls";
        }
        Matcher found = CONDITION.matcher(String.valueOf(error.getMessage()));
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("scope", actual);
        line.put("condition", found.find() ? found.group(1) : JSONObject.NULL);
        line.put("description", String.valueOf(error.getMessage()));
        line.put("info", Map.of());
        say("error", line);
    }

    /** What became of the messages of one producer. */
    private final class Outcomes {
        final Map<String, Integer> counts = new LinkedHashMap<>();
        final CountDownLatch all;

        Outcomes(int count) {
            all = new CountDownLatch(count);
        }

        CompletionListener of(int index) {
            return new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    count(request.optBoolean("settled") ? "settled" : "accepted");
                }

                @Override
                public void onException(Message message, Exception error) {
                    Matcher found = CONDITION.matcher(String.valueOf(error.getMessage()));
                    String outcome = String.valueOf(error.getMessage()).contains("released") ? "released" : "rejected";
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("index", index);
                    line.put("outcome", outcome);
                    line.put("condition", found.find() ? found.group(1) : JSONObject.NULL);
                    line.put("description", String.valueOf(error.getMessage()));
                    say("outcome", line);
                    count(outcome);
                }
            };
        }

        private synchronized void count(String outcome) {
            counts.merge(outcome, 1, Integer::sum);
            all.countDown();
        }
    }

    /** Tells what the peer closes. */
    private final class Listener implements JmsConnectionListener {
        @Override
        public void onConnectionFailure(Throwable error) {
            fail("connection", error);
        }

        @Override
        public void onSessionClosed(Session session, Throwable cause) {
            fail("session", cause);
        }

        @Override
        public void onConsumerClosed(MessageConsumer consumer, Throwable cause) {
            fail("link", cause);
        }

        @Override
        public void onProducerClosed(MessageProducer producer, Throwable cause) {
            fail("link", cause);
        }

        @Override
        public void onConnectionEstablished(java.net.URI remote) {}

        @Override
        public void onConnectionInterrupted(java.net.URI remote) {}

        @Override
        public void onConnectionRestored(java.net.URI remote) {}

        @Override
        public void onInboundMessage(JmsInboundMessageDispatch envelope) {}
    }
}
