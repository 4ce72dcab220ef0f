"""The configurations of receivers: read, and changed under a condition that the client states."""

from typing import Annotated, Any, TypeVar

from litestar import Request, Response, delete, get, patch, post, put
from litestar.params import FromPath, QueryParameter

from actors.configuration.parsing import members_of
from angarium.access import Access
from angarium.api.admission.change_rate import CHANGES_CODE
from angarium.api.admission.gate import needs
from angarium.api.api_state import ApiState, InjectedAccess, InjectedApi
from angarium.api.openapi.control import ROTATE_RECEIVER_SECRET, RotationRequest
from angarium.api.openapi.receivers import (
    DELETE_RECEIVER,
    GET_RECEIVER,
    LIST_RECEIVERS,
    PATCH_RECEIVER,
    PUT_RECEIVER,
    TEST_FILTER,
    TEST_TRANSFORM,
    ReceiverItem,
    ReceiverPage,
    RemovedReceiver,
    StoredReceiver,
    TransformTrialRequest,
    TrialRequest,
)
from angarium.api.problems import ProblemRaised, result_of
from angarium.api.queries.cursors import NameCursor, PageSize, after_name, cursor_after
from angarium.api.requests import conditions
from angarium.api.requests.bodies import check_json, decoded, json_body
from angarium.api.requests.conditions import Condition, condition, etag_header, is_known, result_if_met
from angarium.api.requests.headers import headers_by_name
from angarium.operations.configurations.get import get_configuration, list_configurations
from angarium.operations.configurations.patch import patch_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.remove import remove_receiver
from angarium.operations.configurations.rotate import RotatedSecret, rotate_secret
from angarium.operations.configurations.trials.filter_trial import FilterTrial, try_filter
from angarium.operations.configurations.trials.transform_trial import TransformTrial, try_transform
from angarium.operations.failures import NotDone
from angarium.operations.receiver_list.health import ReceiverHealth
from angarium.operations.receiver_list.listing import get_health

PATH = "/v1/tenants/{tenant:str}/receivers/{name:str}"
NOT_KEPT = {"cache-control": "no-store"}
"""Headers of answers that no cache may store."""

Asked = Request[Any, Any, Any]
T = TypeVar("T")


@get("/v1/tenants/{tenant:str}/receivers", opt=needs("read"), **LIST_RECEIVERS)
async def list_receivers(
    tenant: FromPath[str],
    api: InjectedApi,
    limit: PageSize = 50,
    cursor: NameCursor = "",
    health: Annotated[bool, QueryParameter(description="Also show the health of each receiver.")] = False,
) -> ReceiverPage:
    """List the receivers of a tenant, in alphabetical order."""
    page = result_of(await list_configurations(api.access, tenant, after_name(cursor), limit))
    found: dict[str, ReceiverHealth] = {}
    if health:
        with api.control_limits.admit(tenant):
            found = result_of(await get_health(api.access, list(page.receivers), api.recent_counts))
    items = [
        ReceiverItem(
            receiver=receiver, name=receiver.partition(".")[2], revision=each.revision,
            configuration=each.members, problems=each.problems, health=found.get(receiver),
        )
        for receiver, each in page.receivers.items()
    ]  # fmt: skip
    return ReceiverPage(receivers=items, next_cursor=cursor_after(items[-1].name) if page.more else None)


@get(PATH, opt=needs("read"), **GET_RECEIVER)
async def get_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], access: InjectedAccess
) -> Response[dict[str, Any] | None]:
    """Show the configuration of a receiver, without its secrets."""
    found = result_of(await get_configuration(access, f"{tenant}.{name}"))
    if found.problems and not found.members:
        detail = f"the stored configuration cannot be read ({found.problems[0]}); put another one"
        raise ProblemRaised(409, "refused", detail)
    if is_known(headers_by_name(request.scope["headers"]), found.revision):
        return Response(None, status_code=304, headers=etag_header(found.revision))
    return Response(found.members, headers=etag_header(found.revision))


@put(PATH, opt=needs("manage"), **PUT_RECEIVER)
async def put_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Response[StoredReceiver]:
    """Store the whole configuration of a receiver."""
    receiver, members, asked = f"{tenant}.{name}", await _members(request, api), _condition(request)
    revision = await _revision(access, receiver, asked)
    new = NewConfiguration(members=members, replace=asked.is_given, revision=revision)
    done = _changed(api, receiver, await put_configuration(access, receiver, new), asked)
    headers = NOT_KEPT | etag_header(done.revision)
    if done.replaced:
        return Response(_stored(done), headers=headers)
    return Response(_stored(done), status_code=201, headers=headers | {"location": request.url.path})


@patch(PATH, opt=needs("manage"), **PATCH_RECEIVER)
async def patch_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Response[StoredReceiver]:
    """Change some members of a configuration."""
    receiver, members, asked = f"{tenant}.{name}", await _members(request, api), _condition(request)
    if asked.revision == conditions.NO_REVISION:
        raise ProblemRaised(400, "not-http", "PATCH changes an existing configuration; send If-Match")
    outcome = await patch_configuration(access, receiver, members, revision=asked.revision)
    done = _changed(api, receiver, outcome, asked)
    return Response(_stored(done), headers=NOT_KEPT | etag_header(done.revision))


@delete(PATH, status_code=200, opt=needs("manage"), **DELETE_RECEIVER)
async def delete_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> RemovedReceiver:
    """Remove a receiver, and discard its waiting events."""
    receiver, asked = f"{tenant}.{name}", _condition(request)
    done = _changed(api, receiver, await remove_receiver(access, receiver, revision=asked.revision), asked)
    return RemovedReceiver(
        receiver=receiver, discarded=done.waiting.count, certain=done.waiting.certain, recorded=done.discarded
    )


@post(f"{PATH}/rotate-secret", status_code=200, opt=needs("manage"), **ROTATE_RECEIVER_SECRET)
async def rotate_receiver_secret(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Response[RotatedSecret]:
    """Give a receiver a new signing secret."""
    receiver, asked = f"{tenant}.{name}", _condition(request)
    given = decoded(await json_body(request, api.limits) or b"{}", RotationRequest)
    revision = await _revision(access, receiver, asked)
    outcome = await rotate_secret(
        access, receiver, given.overlap_s, kind=given.secret_kind, revision=revision
    )
    done = _changed(api, receiver, outcome, asked)
    return Response(done, headers=NOT_KEPT | etag_header(done.revision))


@post(f"{PATH}/test-filter", status_code=200, opt=needs("manage"), **TEST_FILTER)
async def test_receiver_filter(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi
) -> FilterTrial:
    """Show which of the last events the filter of a receiver lets through."""
    given = decoded(await json_body(request, api.limits) or b"{}", TrialRequest)
    with api.control_limits.admit(tenant):
        return result_of(await try_filter(api.access, f"{tenant}.{name}", given.filter, given.last))


@post(f"{PATH}/test-transform", status_code=200, opt=needs("manage"), **TEST_TRANSFORM)
async def test_receiver_transform(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi
) -> Response[TransformTrial]:
    """Show how the last events would look to a receiver."""
    given = decoded(await json_body(request, api.limits) or b"{}", TransformTrialRequest)
    with api.control_limits.admit(tenant):
        done = await try_transform(api.access, f"{tenant}.{name}", given.transform, given.last)
    return Response(result_of(done), headers=NOT_KEPT)


def _changed(api: ApiState, receiver: str, outcome: T | NotDone, asked: Condition) -> T:
    """The result of a change. Raises `ProblemRaised`, 429 if the tenant has too many."""
    if isinstance(outcome, NotDone) and outcome.code == CHANGES_CODE:
        raise api.changes.problem(receiver, outcome.text)
    return result_if_met(outcome, asked)


def _condition(request: Asked) -> Condition:
    return condition(headers_by_name(request.scope["headers"]))


async def _revision(access: Access, receiver: str, asked: Condition) -> int | None:
    """The revision that a new configuration is to replace. Raises `ProblemRaised`."""
    if not asked.exists:
        return asked.revision
    found = await get_configuration(access, receiver)
    return result_if_met(found, asked).revision


async def _members(request: Asked, api: ApiState) -> dict[str, Any]:
    """The members that a body in JSON has. Raises `ProblemRaised` and InvalidPolicy."""
    body = await json_body(request, api.limits)
    check_json(body)
    return members_of(body)


def _stored(done: PutResult) -> StoredReceiver:
    return StoredReceiver(
        receiver=done.receiver, revision=done.revision, replaced=done.replaced, secret=done.secret,
        secrets=done.secrets, public_keys=done.public_keys, changes=done.changes,
        notes=[each.text for each in done.notes],
    )  # fmt: skip
