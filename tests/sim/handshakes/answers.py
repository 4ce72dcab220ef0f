"""The answers of simulated receivers to handshakes, judged as the product judges those of real ones."""

from actors.configuration.signing_secrets import SecretKey, secret_key
from actors.machine.outcome import Answered, Failed
from actors.ports import Attempt
from angarium.delivery.handshake import USUAL_ORIGIN, Question, check_proof, proof

CHALLENGE = "challenge"
NONCE = "nonce"


def answer_to(
    attempt: Attempt, secret: str | None, allowed_per_minute: int | None, now: float
) -> Answered | Failed:
    """The answer of a receiver that has that secret; None: the newest of its configuration."""
    policy = attempt.policy
    if policy.handshake == "cloudevents":
        rate = "*" if allowed_per_minute is None else str(allowed_per_minute)
        headers = (("webhook-allowed-origin", USUAL_ORIGIN), ("webhook-allowed-rate", rate))
        answer = Answered(status=200, latency_ms=1.0, headers=headers)
        return check_proof(answer, Question("OPTIONS", ()), policy, now)
    key = secret_key(secret or policy.secrets[0])
    assert isinstance(key, SecretKey)
    body = f'{{"nonce": "{NONCE}", "hmac": "{proof(key.key, CHALLENGE, NONCE)}"}}'.encode()
    answer = Answered(status=200, latency_ms=1.0, body=body)
    return check_proof(answer, Question("GET", (), CHALLENGE), policy, now)
