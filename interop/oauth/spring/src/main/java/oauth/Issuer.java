package oauth;

import static org.springframework.security.config.Customizer.withDefaults;

import com.nimbusds.jose.jwk.JWKSet;
import com.nimbusds.jose.jwk.RSAKey;
import com.nimbusds.jose.jwk.gen.RSAKeyGenerator;
import com.nimbusds.jose.jwk.source.ImmutableJWKSet;
import com.nimbusds.jose.jwk.source.JWKSource;
import com.nimbusds.jose.proc.SecurityContext;
import java.util.List;
import java.util.UUID;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.userdetails.User;
import org.springframework.security.core.userdetails.UserDetailsService;
import org.springframework.security.oauth2.core.AuthorizationGrantType;
import org.springframework.security.oauth2.core.ClientAuthenticationMethod;
import org.springframework.security.oauth2.core.oidc.OidcScopes;
import org.springframework.security.oauth2.server.authorization.OAuth2TokenType;
import org.springframework.security.oauth2.server.authorization.client.InMemoryRegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClient;
import org.springframework.security.oauth2.server.authorization.client.RegisteredClientRepository;
import org.springframework.security.oauth2.server.authorization.config.annotation.web.configurers.OAuth2AuthorizationServerConfigurer;
import org.springframework.security.oauth2.server.authorization.settings.AuthorizationServerSettings;
import org.springframework.security.oauth2.server.authorization.settings.ClientSettings;
import org.springframework.security.oauth2.server.authorization.token.JwtEncodingContext;
import org.springframework.security.oauth2.server.authorization.token.OAuth2TokenCustomizer;
import org.springframework.security.provisioning.InMemoryUserDetailsManager;
import org.springframework.security.web.SecurityFilterChain;

/** Spring Authorization Server as its reference documentation sets it up. */
@SpringBootApplication
public class Issuer {
    @Bean
    SecurityFilterChain security(HttpSecurity http) throws Exception {
        return http.with(
                        OAuth2AuthorizationServerConfigurer.authorizationServer(), server -> server.oidc(withDefaults()))
                .authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
                .formLogin(withDefaults())
                .build();
    }

    @Bean
    RegisteredClientRepository clients(
            @Value("${client.secret}") String secret, @Value("${client.redirect}") String redirect) {
        RegisteredClient client = RegisteredClient.withId("agent")
                .clientId("agent")
                .clientSecret("{noop}" + secret)
                .clientAuthenticationMethod(ClientAuthenticationMethod.CLIENT_SECRET_BASIC)
                .authorizationGrantType(AuthorizationGrantType.CLIENT_CREDENTIALS)
                .authorizationGrantType(AuthorizationGrantType.AUTHORIZATION_CODE)
                .authorizationGrantType(AuthorizationGrantType.REFRESH_TOKEN)
                .redirectUri(redirect)
                .scope(OidcScopes.OPENID)
                .scope("orders.read")
                .scope("orders.write")
                .clientSettings(ClientSettings.builder().requireProofKey(true).build())
                .build();
        return new InMemoryRegisteredClientRepository(client);
    }

    @Bean
    UserDetailsService users(@Value("${client.secret}") String secret) {
        return new InMemoryUserDetailsManager(
                User.withUsername("ada").password("{noop}" + secret).roles("USER").build());
    }

    /** By default the audience is the client; the documentation customizes it so for a resource server. */
    @Bean
    OAuth2TokenCustomizer<JwtEncodingContext> audience(@Value("${resource}") String resource) {
        return context -> {
            if (OAuth2TokenType.ACCESS_TOKEN.equals(context.getTokenType())) {
                context.getClaims().audience(List.of(resource));
            }
        };
    }

    @Bean
    JWKSource<SecurityContext> keys() throws Exception {
        RSAKey key = new RSAKeyGenerator(2048).keyID(UUID.randomUUID().toString()).generate();
        return new ImmutableJWKSet<>(new JWKSet(key));
    }

    @Bean
    AuthorizationServerSettings settings(@Value("${issuer}") String issuer) {
        return AuthorizationServerSettings.builder().issuer(issuer).build();
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Issuer.class, arguments);
    }
}
