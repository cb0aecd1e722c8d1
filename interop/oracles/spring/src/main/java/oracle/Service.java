package oracle;

import java.io.File;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.catalina.Context;
import org.apache.catalina.Wrapper;
import org.apache.catalina.startup.Tomcat;
import org.apache.catalina.util.ServerInfo;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.SpringVersion;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.request.ServletWebRequest;
import org.springframework.web.context.request.WebRequest;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.filter.ForwardedHeaderFilter;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;
import org.springframework.web.servlet.config.annotation.PathMatchConfigurer;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;

/** A Spring MVC application in Tomcat that answers with what it has read: ORACLE=spring5|spring6, and the port. */
public final class Service {
    static final String ORACLE = System.getenv("ORACLE");
    static final String VERSION = "Spring MVC " + SpringVersion.getVersion() + ", " + ServerInfo.getServerInfo();

    static final String TRAILERS = "x-tenant,x-stage,x-http-method-override,x-forwarded-host,x-delegation-subject,x-delegation-tool";

    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        File folder = new File(arguments[1]);
        tomcat.setBaseDir(folder.getPath());
        tomcat.setPort(Integer.parseInt(arguments[0]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setProperty("relaxedQueryChars", "[]{}|^`\"<>\\");
        tomcat.getConnector().setProperty("allowedTrailerHeaders", TRAILERS);
        Context context = tomcat.addContext("", folder.getPath());

        // Trusts X-Forwarded-Host, X-Forwarded-Prefix and Forwarded, as behind a proxy.
        FilterDef definition = new FilterDef();
        definition.setFilterName("forwarded");
        definition.setFilterClass(ForwardedHeaderFilter.class.getName());
        context.addFilterDef(definition);
        FilterMap map = new FilterMap();
        map.setFilterName("forwarded");
        map.addURLPattern("/*");
        context.addFilterMap(map);

        AnnotationConfigWebApplicationContext application = new AnnotationConfigWebApplicationContext();
        application.register(Settings.class, Endpoints.class);
        Wrapper servlet = Tomcat.addServlet(context, "dispatcher", new DispatcherServlet(application));
        servlet.setLoadOnStartup(1);
        context.addServletMappingDecoded("/", "dispatcher");
        tomcat.start();
        tomcat.getServer().await();
    }

    @Configuration
    @EnableWebMvc
    static class Settings implements WebMvcConfigurer {
        /** Spring 5 as in older applications: patterns match a trailing slash and any suffix. Spring 6 has its defaults. */
        @Override
        @SuppressWarnings("deprecation")
        public void configurePathMatch(PathMatchConfigurer matching) {
            if (ORACLE.equals("spring5")) {
                matching.setUseSuffixPatternMatch(true);
                matching.setUseTrailingSlashMatch(true);
            }
        }
    }

    @RestController
    static class Endpoints {
        @GetMapping("/orders")
        String listOrders(WebRequest request) { return answer("list_orders", request, null); }

        @PostMapping("/orders")
        String createOrder(WebRequest request) { return answer("create_order", request, null); }

        @RequestMapping("/admin/users")
        String adminUsers(WebRequest request) { return answer("admin_users", request, null); }

        @RequestMapping("/preview")
        String preview(WebRequest request) { return answer("preview", request, null); }

        @RequestMapping("/export")
        String export(WebRequest request) { return answer("export", request, null); }

        /** The whole segment: with only `{name}`, Spring 5 would take the part after a dot for the suffix. */
        @RequestMapping("/files/{name:.+}")
        String file(@PathVariable("name") String name, WebRequest request) { return answer("file", request, name); }

        @RequestMapping("/tenant")
        String tenant(WebRequest request) { return answer("tenant", request, null); }

        @RequestMapping("/search")
        String search(WebRequest request) { return answer("search", request, null); }

        @RequestMapping("/article")
        String article(WebRequest request) { return answer("article", request, null); }

        @RequestMapping("/beta")
        String beta(WebRequest request) { return answer("beta", request, null); }

        @RequestMapping("/site")
        String site(WebRequest request) { return answer("site", request, null); }

        @RequestMapping("/cache")
        String cache(WebRequest request) { return answer("cache", request, null); }

        @RequestMapping("/public")
        String open(WebRequest request) { return answer("public", request, null); }

        @RequestMapping("/Reports/Q3")
        String report(WebRequest request) { return answer("report", request, null); }

        @RequestMapping("/**")
        String none(WebRequest request) { return answer("none", request, null); }
    }

    static String answer(String handler, WebRequest web, String name) {
        Request request = new Request(((ServletWebRequest) web).getNativeRequest());
        request.readBody();
        Map<String, String> query = new LinkedHashMap<>();
        for (String member : new String[] {"full", "full_export", "q", "limit", "note", "teaser", "mode"}) {
            String value = web.getParameter(member);
            if (value != null) query.put(member, value);
        }
        Map<String, String> headers = new LinkedHashMap<>();
        web.getHeaderNames().forEachRemaining(header -> headers.put(header.toLowerCase(), web.getHeader(header)));
        Map<String, String> captures = new LinkedHashMap<>();
        if (name != null) captures.put("name", name);
        return "{\"oracle\":" + quoted(ORACLE) + ",\"version\":" + quoted(VERSION) + ",\"handler\":" + quoted(handler) + ",\"captures\":" + object(captures)
                + ",\"method\":" + quoted(request.text("getMethod")) + ",\"host\":" + quoted(request.text("getServerName"))
                + ",\"query\":" + object(query) + ",\"headers\":" + object(headers) + ",\"trailers\":" + object(request.trailers())
                + "}";
    }

    /** Accesses the servlet request by reflection: it is in javax.servlet in Spring 5, and in jakarta.servlet in Spring 6. */
    static final class Request {
        private final Object request;

        Request(Object request) { this.request = request; }

        Object call(Object on, String method) {
            try {
                Method found = on.getClass().getMethod(method);
                // The classes of Spring's and Tomcat's requests are not public.
                found.setAccessible(true);
                return found.invoke(on);
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        String text(String method) { return (String) call(request, method); }

        void readBody() {
            try {
                // Reading a form's parameters consumes the body.
                call(request, "getParameterMap");
                java.io.InputStream body = (java.io.InputStream) call(request, "getInputStream");
                body.skip(Long.MAX_VALUE);
                while (body.read() >= 0) { }
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @SuppressWarnings("unchecked")
        Map<String, String> trailers() {
            return (Boolean) call(request, "isTrailerFieldsReady") ? (Map<String, String>) call(request, "getTrailerFields") : Map.of();
        }
    }

    static String object(Map<String, String> members) {
        StringBuilder text = new StringBuilder("{");
        members.forEach((name, value) -> {
            if (text.length() > 1) text.append(',');
            text.append(quoted(name)).append(':').append(quoted(value));
        });
        return text.append('}').toString();
    }

    static String quoted(String text) {
        if (text == null) return "null";
        StringBuilder quoted = new StringBuilder("\"");
        for (char character : text.toCharArray()) {
            if (character == '"' || character == '\\' || character < ' ' || character > '~') {
                quoted.append(String.format("\\u%04x", (int) character));
            } else {
                quoted.append(character);
            }
        }
        return quoted.append('"').toString();
    }
}
