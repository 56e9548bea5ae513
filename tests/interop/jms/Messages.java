import jakarta.jms.BytesMessage;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.math.BigDecimal;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.message.JmsMessage;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.Symbol;
import org.apache.qpid.proton.amqp.UnsignedInteger;
import org.apache.qpid.proton.amqp.UnsignedLong;
import org.json.JSONArray;
import org.json.JSONObject;

/** Messages and values between JSON and JMS. */
final class Messages {
    private static final int DATA_SHOWN_MAX = 1024;

    private Messages() {}

    static Message of(Session session, JSONObject form) throws JMSException {
        Message message = body(session, form);
        JSONObject properties = form.optJSONObject("properties", new JSONObject());
        if (properties.has("subject")) message.setJMSType(properties.getString("subject"));
        if (properties.has("correlation_id")) message.setJMSCorrelationID(properties.getString("correlation_id"));
        if (properties.has("group_id")) message.setStringProperty("JMSXGroupID", properties.getString("group_id"));
        JSONObject application = form.optJSONObject("application_properties", new JSONObject());
        for (String name : application.keySet()) message.setObjectProperty(name, typed(application.get(name)));
        JSONObject annotations = form.optJSONObject("message_annotations", new JSONObject());
        for (String name : annotations.keySet()) {
            ((JmsMessage) message).getFacade().setTracingAnnotation(name, typed(annotations.get(name)));
        }
        return message;
    }

    private static Message body(Session session, JSONObject form) throws JMSException {
        if (form.has("size") || form.has("data")) {
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeBytes(form.has("size")
                    ? pattern(form.getInt("size"))
                    : Base64.getDecoder().decode(form.getString("data")));
            return bytes;
        }
        if (form.opt("value") instanceof JSONObject map) {
            MapMessage message = session.createMapMessage();
            for (String name : map.keySet()) message.setObject(name, typed(map.get(name)));
            return message;
        }
        if (form.has("sequence")) {
            StreamMessage stream = session.createStreamMessage();
            for (Object item : form.getJSONArray("sequence")) stream.writeObject(typed(item));
            return stream;
        }
        return session.createTextMessage(form.isNull("value") ? null : form.getString("value"));
    }

    private static byte[] pattern(int size) {
        byte[] data = new byte[size];
        for (int at = 0; at < size; at++) data[at] = (byte) (at % 251);
        return data;
    }

    /** JSON to what JMS takes: whole numbers are longs. */
    private static Object typed(Object value) {
        if (value == JSONObject.NULL) return null;
        if (value instanceof BigDecimal number) return number.doubleValue();
        if (value instanceof Integer number) return number.longValue();
        if (!(value instanceof JSONObject object)) return value;
        String kind = object.keys().next();
        return switch (kind) {
            case "$symbol" -> Symbol.valueOf(object.getString(kind));
            case "$int" -> object.getInt(kind);
            case "$short" -> (short) object.getInt(kind);
            case "$byte" -> (byte) object.getInt(kind);
            case "$float" -> object.getFloat(kind);
            case "$ulong" -> UnsignedLong.valueOf(object.getLong(kind));
            case "$uint" -> UnsignedInteger.valueOf(object.getInt(kind));
            case "$timestamp" -> new Date(object.getLong(kind));
            case "$binary" -> Base64.getDecoder().decode(object.getString(kind));
            default -> throw new IllegalArgumentException("a value that JMS does not know: " + object);
        };
    }

    static Map<String, Object> shown(Message message) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("durable", message.getJMSDeliveryMode() == 2);
        Map<String, Object> application = new LinkedHashMap<>();
        for (Object name : Collections.list(message.getPropertyNames())) {
            if (!name.toString().startsWith("JMS")) {
                application.put(name.toString(), shown(message.getObjectProperty(name.toString())));
            }
        }
        answer.put("application_properties", application);
        Map<String, Object> annotations = new LinkedHashMap<>();
        ((JmsMessage) message).getFacade().filterTracingAnnotations((name, value) -> annotations.put(name, shown(value)));
        answer.put("message_annotations", annotations);
        answer.put("delivery_annotations", Map.of());
        answer.put("properties", properties(message));
        showBody(message, answer);
        return answer;
    }

    private static Map<String, Object> properties(Message message) throws JMSException {
        Map<String, Object> answer = new LinkedHashMap<>();
        if (message.getJMSMessageID() != null) answer.put("message_id", message.getJMSMessageID());
        if (message.getJMSCorrelationID() != null) answer.put("correlation_id", message.getJMSCorrelationID());
        if (message.getJMSType() != null) answer.put("subject", message.getJMSType());
        if (message.getStringProperty("JMSXGroupID") != null) {
            answer.put("group_id", message.getStringProperty("JMSXGroupID"));
        }
        return answer;
    }

    private static void showBody(Message message, Map<String, Object> answer) throws Exception {
        if (message instanceof BytesMessage bytes) {
            byte[] data = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(data);
            answer.put("size", data.length);
            answer.put("sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data)));
            if (data.length <= DATA_SHOWN_MAX) answer.put("data", Base64.getEncoder().encodeToString(data));
        } else if (message instanceof MapMessage map) {
            Map<String, Object> value = new LinkedHashMap<>();
            for (Object name : Collections.list(map.getMapNames())) {
                value.put(name.toString(), shown(map.getObject(name.toString())));
            }
            answer.put("value", value);
        } else if (message instanceof TextMessage text) {
            answer.put("value", shown(text.getText()));
        } else if (message instanceof ObjectMessage object) {
            answer.put("value", shown(object.getObject()));
        } else {
            answer.put("value", JSONObject.NULL);
        }
    }

    private static Object shown(Object value) {
        if (value == null) return JSONObject.NULL;
        if (value instanceof Symbol symbol) return Map.of("$symbol", symbol.toString());
        if (value instanceof UnsignedLong number) return Map.of("$ulong", number.bigIntegerValue());
        if (value instanceof UnsignedInteger number) return Map.of("$uint", number.longValue());
        if (value instanceof Integer number) return Map.of("$int", number);
        if (value instanceof Date date) return Map.of("$timestamp", date.getTime());
        if (value instanceof byte[] data) return Map.of("$binary", Base64.getEncoder().encodeToString(data));
        if (value instanceof Binary data) return shown(data.getArray());
        if (value instanceof Object[] array) return shown(List.of(array));
        if (value instanceof List<?> list) {
            List<Object> answer = new ArrayList<>();
            for (Object item : list) answer.add(shown(item));
            return new JSONArray(answer);
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> answer = new LinkedHashMap<>();
            map.forEach((name, item) -> answer.put(String.valueOf(name), shown(item)));
            return answer;
        }
        return value;
    }
}
