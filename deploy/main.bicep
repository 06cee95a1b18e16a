// What the promises rest on is declared here, and nothing else makes it: the app has no right to create a container, a
// topic or a subscription. tests/deploy holds this against the settings and the documentation;
// `python -m cosmos_outbox preflight` holds a deployment against both.
targetScope = 'resourceGroup'

@minLength(1)
@maxLength(64)
@description('A name for this deployment. With the resource group it decides the names of all resources.')
param environmentName string

@description('Where everything is created: a region that has Flex Consumption.')
param location string = resourceGroup().location

@allowed(['serverless', 'autoscale'])
@description('Serverless bills what is used; autoscale reserves throughput and has more of it. There is no way back from autoscale.')
param cosmosCapacity string = 'serverless'

@minValue(1000)
@description('Autoscale only: the most RU/s that the database uses, in steps of 1000. A tenth of it is always billed.')
param cosmosMaxThroughput int = 1000

@description('Regions of Cosmos DB, the one that takes writes first. Empty: location alone.')
param cosmosRegions array = []

@description('Another of these regions takes the writes by itself when the first is lost, and what it does not have is lost.')
param cosmosAutomaticFailover bool = false

@description('The name of another account, such as one that was restored. Empty: the account of this deployment.')
param cosmosAccountName string = ''

@description('The emergency brake: nothing in the container of aggregates and events expires.')
param emergencyBrake bool = false

@allowed(['servicebus', 'storagequeue'])
@description('What events are sent over. Storage queues keep no order and drop no duplicates: the inbox does both.')
param transport string = 'servicebus'

@description('A queue with sessions in place of the topic, for a service with one subscriber. Empty: a topic.')
param serviceBusQueue string = ''

@description('The topic, in place of the declared one. Another name makes another topic, and leaves the one before.')
param serviceBusTopic string = ''

@allowed(['functions', 'containers'])
@description('Where relay and subscriber run. Containers: in Container Apps, and a function app answers HTTP unless apiImage does.')
param hosting string = 'functions'

@description('The image of relay and subscriber, of deploy/containers/worker.Dockerfile, in the registry that a first deployment without it makes.')
param workerImage string = ''

@description('The image of an API, of deploy/containers/api.Dockerfile, which takes the place of the function app. The contact service has none.')
param apiImage string = ''

@description('A time table in UTC, such as */5 * * * *: the relay is a job that ends when all is forwarded. Empty: it is always there.')
param relaySchedule string = ''

@minValue(1)
@maxValue(300)
@description('Replicas at most of each container app. One of each is always there, with zones two.')
param maximumReplicas int = 3

@allowed(['Standard', 'Premium'])
@description('Private networking needs Premium.')
param serviceBusSku string = 'Standard'

@allowed([1, 2, 4, 8, 16])
@description('Premium only: messaging units.')
param messagingUnits int = 1

@minValue(1024)
@maxValue(102400)
@description('Premium only: the largest message, in KB.')
param largestMessageKB int = 1024

@description('Standard only. The relay then sends one message at a time: a partitioned topic with duplicate detection takes no batches.')
param topicPartitioned bool = false

@description('How long the topic remembers the ids of events, ISO 8601, PT20S to P7D: longer than any stop of the relay after which it may send again what it has sent.')
param duplicateDetectionWindow string = 'PT1H'

@minValue(1)
@maxValue(2000)
@description('Deliveries of a message before it goes to the dead-letter queue of the subscription. An hour without the store costs 80.')
param maxDeliveryCount int = 2000

@description('Subscriptions, or storage queues, of other services: [{ name, principalId }], each with the identity that receives it.')
param otherSubscriptions array = []

@minValue(1)
@maxValue(2147483647)
@description('How long events and tombstones are kept, in seconds: longer than any outage that you want to survive.')
param eventTtlSeconds int = 864000

@description('The absolute URI under which you publish docs/use/events/schemas; empty: messages name the version of their schema only.')
param eventSchemas string = ''

@minValue(60)
@maxValue(2147483647)
@description('How long a repeated POST gets the first answer, in seconds.')
param idempotencyTtlSeconds int = 86400

@description('Seconds for which an event that cannot be sent is kept. Then it is discarded, and what waits behind it is sent.')
@minValue(1)
@maxValue(2147483647)
param parkedMaxAgeSeconds int = 1728000

@description('From which age of the oldest waiting event on changes are answered 503, in seconds, at least 5; 0: never.')
@minValue(0)
@maxValue(2147483647)
param shedLoadAfterSeconds int = 0

@description('The relay is paused: nothing is sent, and events wait.')
param relayPaused bool = false

@description('The subscriber is stopped: messages wait in its subscription.')
param subscriberStopped bool = false

@description('More settings of the apps, or other values than here: [{ name: \'RELAY_MAX_ITEMS\', value: \'500\' }]')
param settings array = []

@allowed(['3.11', '3.12', '3.13', '3.14'])
@description('The version of Python on Flex Consumption. Another one needs a new publish at once.')
param pythonVersion string = '3.12'

@allowed([512, 2048, 4096])
@description('Memory of an instance.')
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
@description('Instances on demand of each group: the HTTP functions are one group, every other function is one of its own. Not every region takes less than 40.')
param maximumInstanceCount int = 40

@minValue(1)
@maxValue(1000)
@description('Requests that an instance answers at once, before another instance is added. Azure takes 1 for Python unless told: this app waits for its stores, and needs no instance for each request.')
param httpConcurrency int = 16

@minValue(0)
@description('Instances of the relay that never go away: with 0 the first event after a quiet time waits for a cold start.')
param relayAlwaysReady int = 0

@description('Aggregates of the service have deadlines (due, on_due), and an alert comes when one is not met. The contact service has none.')
param deadlines bool = false

@description('Cosmos DB, Service Bus and storage are reached over private endpoints only. Needs Service Bus Premium.')
param privateNetworking bool = false

@description('Origins of web pages that may call the API from a browser, such as https://www.contoso.com. The operations page needs none.')
param allowedOrigins array = []

@description('Client id of an app registration in Microsoft Entra ID: each call to the API then needs a token for it beside the function key. Empty: the key is enough.')
param signInClientId string = ''

@description('Cosmos DB and the function apps are spread over the zones of the region; Service Bus is where the region has zones. Decide it before the account is made.')
param zoneRedundant bool = false

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
@description('Storage of the Functions host: keys, locks and packages. Zone-redundant apps need ZRS or GZRS.')
param storageSku string = 'Standard_LRS'

@allowed(['Periodic', 'Continuous7Days', 'Continuous30Days'])
@description('Continuous backups can be restored to any second. There is no way back from continuous to periodic.')
param cosmosBackup string = 'Periodic'

@allowed(['Local', 'Zone', 'Geo'])
@description('Where periodic backups are kept.')
param periodicBackupRedundancy string = 'Local'

@description('Gives who deploys the two roles that preflight needs: reading the data of Cosmos DB, owning the data of Service Bus.')
param grantPreflight bool = false

@description('No deletion of Cosmos DB and Service Bus, before somebody takes their locks away. Needs User Access Administrator.')
param deleteLocks bool = false

@description('A record of each request to Cosmos DB, and with Premium of who sends and receives. They may cost more than the requests.')
param dataPlaneLogs bool = false

@minValue(0)
@description('A mail when the resource group costs more in a month, in the currency of the invoice. 0: no budget.')
param monthlyBudget int = 0

@description('The first day of the month in which the budget is made, such as 2026-03-01. It cannot be changed later.')
param budgetStart string = ''

@description('Who gets the alerts. Empty: the alerts are made, and nobody gets a mail.')
param alertEmail string

@description('The folder in which the alerts find docs/, with a slash at its end, such as https://github.com/contoso/outbox/blob/main/')
param docsUrl string = ''

@minValue(0)
@description('Seconds: alert when the oldest change has waited for longer.')
param alertOldestWaitingSeconds int = 60

@minValue(0)
@maxValue(100)
@description('Percent of eventTtlSeconds: alert when the oldest change has used more.')
param alertTtlUsedPercent int = 10

@allowed([30, 60, 120, 180])
@description('Minutes: alert when more was stored than forwarded in each ten minutes of this time.')
param alertBehindMinutes int = 60

@minValue(0)
@description('Alert when more contacts are parked.')
param alertParkedContacts int = 0

@minValue(0)
@description('Alert when more messages are set aside.')
param alertSetAsideMessages int = 0

@minValue(0)
@description('Seconds: alert when an aggregate has been due for longer.')
param alertDeadlineSeconds int = 600

@minValue(0)
@description('Alert when the topic has had more dead letters at once in five minutes.')
param alertDeadLetters int = 0

@minValue(0)
@description('Alert when the topic holds more bytes: it takes 5 GiB.')
param alertTopicBytes int = 4000000000

@minValue(0)
@description('Alert when more messages than this have waited for an hour, in all subscriptions of the topic: nobody may read one.')
param alertUnreadMessages int = 1000

@allowed([15, 30, 45, 60])
@description('Minutes: alert when nobody has reported on the relay for so long.')
param alertNoReportMinutes int = 15

@minValue(0)
@description('Alert when Cosmos DB or Service Bus has throttled more requests in five minutes. The SDKs repeat such requests.')
param alertThrottledRequests int = 10

@minValue(0)
@description('Alert when more requests and invocations have failed in 15 minutes; what the caller did wrong does not count.')
param alertFailedRequests int = 5

var resourceToken = toLower(uniqueString(resourceGroup().id, environmentName))
var tags = { 'azd-env-name': environmentName }

var overServiceBus = transport == 'servicebus'
var inContainers = hosting == 'containers'
var inFunctions = !inContainers || empty(apiImage)
var workersAreThere = inContainers && !empty(workerImage)

// What the service declares: `cosmos-outbox resources deploy/service.json` writes the file, and a test compares it. The
// functions in it are those that answer callers, those that work, and of these the ones that a container can take over.
// The timers beside them do no harm to one another; health, problems and paths that nobody has are answered by both apps.
var declared = loadJsonContent('service.json')
var databaseName = declared.settings.COSMOS_DATABASE
var containerName = declared.settings.COSMOS_CONTAINER
var leaseContainerName = declared.settings.COSMOS_LEASE_CONTAINER
var parkedContainerName = declared.settings.COSMOS_PARKED_CONTAINER
var claimContainerName = declared.settings.COSMOS_CLAIM_CONTAINER
var containerNames = map(declared.cosmos.containers, each => each.name)
var topicName = empty(serviceBusTopic) ? declared.settings.SERVICEBUS_TOPIC : serviceBusTopic

// What does not run while an operator does not want it to.
var stoppedFunctions = concat(
  relayPaused ? ['relay', 'tend_parked'] : [],
  subscriberStopped ? filter(declared.functions.triggered, name => name != 'relay') : []
)

var preflightPrincipalId = grantPreflight ? deployer().objectId : ''

// One identity each, with the least rights: what is broken into can do no more than it does.
module apiIdentity 'modules/identity.bicep' = {
  name: 'identity-api-${resourceToken}'
  params: {
    name: 'id-api-${resourceToken}'
    location: location
    tags: tags
  }
}

module workersIdentity 'modules/identity.bicep' = if (inFunctions) {
  name: 'identity-workers-${resourceToken}'
  params: {
    name: 'id-workers-${resourceToken}'
    location: location
    tags: tags
  }
}

module relayIdentity 'modules/identity.bicep' = if (workersAreThere) {
  name: 'identity-relay-${resourceToken}'
  params: {
    name: 'id-relay-${resourceToken}'
    location: location
    tags: tags
  }
}

module subscriberIdentity 'modules/identity.bicep' = if (workersAreThere) {
  name: 'identity-subscriber-${resourceToken}'
  params: {
    name: 'id-subscriber-${resourceToken}'
    location: location
    tags: tags
  }
}

var workers = inFunctions ? [workersIdentity!.outputs.principalId] : []
var senders = concat(workers, workersAreThere ? [relayIdentity!.outputs.principalId] : [])
var receivers = concat(workers, workersAreThere ? [subscriberIdentity!.outputs.principalId] : [])
var principals = union([apiIdentity.outputs.principalId], senders, receivers)

// The containers in which each writes; it reads them all. Who reads a newest state writes there too, in vain.
var apiWrites = intersection(containerNames, [containerName, claimContainerName])
var relayWrites = [containerName, leaseContainerName, parkedContainerName]
var subscriberWrites = filter(containerNames, name => name != leaseContainerName && name != claimContainerName)

module monitoring 'modules/monitoring.bicep' = {
  name: 'monitoring-${resourceToken}'
  params: {
    resourceToken: resourceToken
    location: location
    tags: tags
    principalIds: principals
  }
}

module network 'modules/network.bicep' = if (privateNetworking) {
  name: 'network-${resourceToken}'
  params: {
    name: 'vnet-${resourceToken}'
    location: location
    tags: tags
  }
}

// Of each app a storage account for its Functions host, and a third for the code of both, which neither can write.
module storage 'modules/storage.bicep' = if (inFunctions) {
  name: 'storage-${resourceToken}'
  params: {
    name: 'st${resourceToken}'
    location: location
    tags: tags
    hosts: [apiIdentity.outputs.principalId]
    sku: storageSku
    publicNetworkAccess: privateNetworking ? 'Disabled' : 'Enabled'
  }
}

module workersStorage 'modules/storage.bicep' = if (inFunctions || !overServiceBus) {
  name: 'workers-storage-${resourceToken}'
  params: {
    name: 'stw${resourceToken}'
    location: location
    tags: tags
    hosts: workers
    sku: storageSku
    publicNetworkAccess: privateNetworking ? 'Disabled' : 'Enabled'
  }
}

module packages 'modules/packages.bicep' = if (inFunctions) {
  name: 'packages-${resourceToken}'
  params: {
    name: 'stp${resourceToken}'
    location: location
    tags: tags
    sku: storageSku
    apiPrincipalId: apiIdentity.outputs.principalId
    workersPrincipalId: workersIdentity!.outputs.principalId
    publisherPrincipalId: deployer().objectId
  }
}

module cosmos 'modules/cosmos.bicep' = {
  name: 'cosmos-${resourceToken}'
  params: {
    name: empty(cosmosAccountName) ? 'cosmos-${resourceToken}' : cosmosAccountName
    location: location
    tags: tags
    capacity: cosmosCapacity
    maxThroughput: cosmosMaxThroughput
    regions: empty(cosmosRegions) ? [location] : cosmosRegions
    automaticFailover: cosmosAutomaticFailover
    nothingExpires: emergencyBrake
    deleteLock: deleteLocks
    dataPlaneLogs: dataPlaneLogs
    zoneRedundant: zoneRedundant
    backup: cosmosBackup
    periodicBackupRedundancy: periodicBackupRedundancy
    databaseName: databaseName
    containers: declared.cosmos.containers
    containerName: containerName
    access: concat(
      [{ principalId: apiIdentity.outputs.principalId, writes: apiWrites }],
      map(workers, principalId => { principalId: principalId, writes: union(relayWrites, subscriberWrites) }),
      workersAreThere ? [{ principalId: relayIdentity!.outputs.principalId, writes: relayWrites }] : [],
      workersAreThere ? [{ principalId: subscriberIdentity!.outputs.principalId, writes: subscriberWrites }] : []
    )
    readerPrincipalId: preflightPrincipalId
    workspaceId: monitoring.outputs.workspaceId
    publicNetworkAccess: privateNetworking ? 'Disabled' : 'Enabled'
  }
}

module serviceBus 'modules/servicebus.bicep' = if (overServiceBus) {
  name: 'servicebus-${resourceToken}'
  params: {
    name: 'sb-${resourceToken}'
    location: location
    tags: tags
    sku: serviceBusSku
    messagingUnits: messagingUnits
    largestMessageKB: largestMessageKB
    deleteLock: deleteLocks
    dataPlaneLogs: dataPlaneLogs
    topicName: topicName
    topicPartitioned: topicPartitioned
    subscriptionNames: declared.subscriptions
    duplicateDetectionWindow: duplicateDetectionWindow
    maxDeliveryCount: maxDeliveryCount
    otherSubscriptions: otherSubscriptions
    queueName: serviceBusQueue
    senders: senders
    receivers: receivers
    ownerPrincipalId: preflightPrincipalId
    workspaceId: monitoring.outputs.workspaceId
    publicNetworkAccess: privateNetworking ? 'Disabled' : 'Enabled'
  }
}

module storageQueues 'modules/storagequeues.bicep' = if (!overServiceBus) {
  name: 'storagequeues-${resourceToken}'
  params: {
    accountName: workersStorage!.outputs.name
    senders: senders
    receivers: receivers
    ownQueues: declared.subscriptions
    otherQueues: otherSubscriptions
  }
}

module storageEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking && inFunctions) {
  name: 'storage-endpoint-${resourceToken}'
  params: {
    name: 'pe-blob-${resourceToken}'
    location: location
    tags: tags
    serviceId: storage!.outputs.id
    groupId: 'blob'
    zoneName: 'privatelink.blob.${environment().suffixes.storage}'
    networkId: network!.outputs.networkId
    subnetId: network!.outputs.endpointSubnetId
  }
}

module workersStorageEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking && inFunctions) {
  name: 'workers-storage-endpoint-${resourceToken}'
  params: {
    name: 'pe-workers-blob-${resourceToken}'
    location: location
    tags: tags
    serviceId: workersStorage!.outputs.id
    groupId: 'blob'
    zoneName: 'privatelink.blob.${environment().suffixes.storage}'
    networkId: network!.outputs.networkId
    subnetId: network!.outputs.endpointSubnetId
  }
  dependsOn: [storageEndpoint] // the same DNS zone
}

module cosmosEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking) {
  name: 'cosmos-endpoint-${resourceToken}'
  params: {
    name: 'pe-${cosmos.outputs.name}'
    location: location
    tags: tags
    serviceId: cosmos.outputs.id
    groupId: 'Sql'
    zoneName: 'privatelink.documents.azure.com'
    networkId: network!.outputs.networkId
    subnetId: network!.outputs.endpointSubnetId
  }
}

module queueEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking && !overServiceBus) {
  name: 'queue-endpoint-${resourceToken}'
  params: {
    name: 'pe-queue-${resourceToken}'
    location: location
    tags: tags
    serviceId: workersStorage!.outputs.id
    groupId: 'queue'
    zoneName: 'privatelink.queue.${environment().suffixes.storage}'
    networkId: network!.outputs.networkId
    subnetId: network!.outputs.endpointSubnetId
  }
}

module serviceBusEndpoint 'modules/private-endpoint.bicep' = if (privateNetworking && overServiceBus) {
  name: 'servicebus-endpoint-${resourceToken}'
  params: {
    name: 'pe-servicebus-${resourceToken}'
    location: location
    tags: tags
    serviceId: serviceBus!.outputs.id
    groupId: 'namespace'
    zoneName: 'privatelink.servicebus.windows.net'
    networkId: network!.outputs.networkId
    subnetId: network!.outputs.endpointSubnetId
  }
}

var serviceBusSettings = overServiceBus ? {
  SERVICEBUS__fullyQualifiedNamespace: serviceBus!.outputs.fullyQualifiedNamespace
  SERVICEBUS_TOPIC: topicName
  SERVICEBUS_QUEUE: serviceBusQueue
  SERVICEBUS_TOPIC_PARTITIONED: string(topicPartitioned)
  SERVICEBUS_SESSIONS: '32'
  SERVICEBUS_WEBSOCKETS: 'false'
} : {}

var storageQueueSettings = !overServiceBus ? {
  STORAGEQUEUE__queueServiceUri: workersStorage!.outputs.queueEndpoint
  STORAGEQUEUE_QUEUES: join(concat(declared.subscriptions, map(otherSubscriptions, each => each.name)), ',')
} : {}

// What every app has, in Functions or in a container. The names are those of cosmos_outbox/settings/; "__" parts them from
// the fields of an identity.
var appSettings = union(declared.settings, {
  COSMOS__accountEndpoint: cosmos.outputs.endpoint
  TRANSPORT: transport
  EVENT_SCHEMAS: eventSchemas
  EVENT_TTL_SECONDS: string(eventTtlSeconds)
  IDEMPOTENCY_TTL_SECONDS: string(idempotencyTtlSeconds)
  PARKED_MAX_AGE_SECONDS: string(parkedMaxAgeSeconds)
  SHED_LOAD_AFTER_SECONDS: string(shedLoadAfterSeconds)
  RELAY_SEND_SECONDS: '60'
  RELAY_SENDERS: '6'
  RELAY_LEASE_PREFIX: 'relay-'
  RELAY_MAX_ITEMS: '1000'
  RELAY_POLL_DELAY_MS: '500'
  APPLICATIONINSIGHTS_CONNECTION_STRING: monitoring.outputs.connectionString
})

// The health of the app, its pages and its document are open.
var openPaths = [
  '/api/health'
  '/api/openapi.json'
  '/api/docs'
  '/api/docs/*'
  '/api/problems/*'
]

// Who it is, of the API, the workers' app, the relay and the subscriber.
var identitySettings = map(
  [
    apiIdentity.outputs.clientId
    inFunctions ? workersIdentity!.outputs.clientId : ''
    workersAreThere ? relayIdentity!.outputs.clientId : ''
    workersAreThere ? subscriberIdentity!.outputs.clientId : ''
  ],
  clientId => union(
    {
      COSMOS__credential: 'managedidentity'
      COSMOS__clientId: clientId
      APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${clientId};Authorization=AAD'
    },
    overServiceBus ? {
      SERVICEBUS__credential: 'managedidentity'
      SERVICEBUS__clientId: clientId
    } : {
      STORAGEQUEUE__credential: 'managedidentity'
      STORAGEQUEUE__clientId: clientId
    }
  )
)

// What the Functions host reads, of the API and of the workers' app.
var hostSettings = map(
  [
    { account: inFunctions ? storage!.outputs.name : '', clientId: apiIdentity.outputs.clientId }
    { account: inFunctions ? workersStorage!.outputs.name : '', clientId: inFunctions ? workersIdentity!.outputs.clientId : '' }
  ],
  host => {
    FUNCTIONS_REQUEST_BODY_SIZE_LIMIT: '131072'
    AzureWebJobsStorage__accountName: host.account
    AzureWebJobsStorage__credential: 'managedidentity'
    AzureWebJobsStorage__clientId: host.clientId
  }
)

var ownSettings = toObject(settings, each => each.name, each => each.value)
var commonSettings = map(identitySettings, who => union(appSettings, serviceBusSettings, storageQueueSettings, who, ownSettings))
var apiSettings = commonSettings[0]
var workersSettings = commonSettings[1]
var relaySettings = commonSettings[2]
var subscriberSettings = commonSettings[3]

module app 'modules/functions.bicep' = if (inFunctions) {
  name: 'app-${resourceToken}'
  params: {
    name: 'func-${resourceToken}'
    planName: 'plan-${resourceToken}'
    location: location
    tags: tags
    identityId: apiIdentity.outputs.id
    packageContainerUrl: packages!.outputs.apiUrl
    appSettings: union(hostSettings[0], apiSettings)
    disabledFunctions: declared.functions.workers
    alwaysReady: []
    pythonVersion: pythonVersion
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    httpConcurrency: httpConcurrency
    zoneRedundant: zoneRedundant
    allowedOrigins: allowedOrigins
    signInClientId: signInClientId
    openPaths: openPaths
    subnetId: privateNetworking ? network!.outputs.appSubnetId : ''
  }
}

// Operators have the admin key and no token, so nobody signs in here.
module workersApp 'modules/functions.bicep' = if (inFunctions) {
  name: 'workers-app-${resourceToken}'
  params: {
    name: 'func-workers-${resourceToken}'
    planName: 'plan-workers-${resourceToken}'
    location: location
    tags: tags
    identityId: workersIdentity!.outputs.id
    packageContainerUrl: packages!.outputs.workersUrl
    appSettings: union(hostSettings[1], workersSettings)
    disabledFunctions: union(declared.functions.callers, stoppedFunctions, workersAreThere ? declared.functions.triggered : [])
    alwaysReady: !workersAreThere && relayAlwaysReady > 0 ? [{ name: 'function:relay', instanceCount: relayAlwaysReady }] : []
    pythonVersion: pythonVersion
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    httpConcurrency: httpConcurrency
    zoneRedundant: zoneRedundant
    allowedOrigins: []
    signInClientId: ''
    openPaths: []
    subnetId: privateNetworking ? network!.outputs.appSubnetId : ''
  }
}

module containers 'modules/containers.bicep' = if (inContainers) {
  name: 'containers-${resourceToken}'
  params: {
    name: 'cae-${resourceToken}'
    registryName: 'cr${resourceToken}'
    location: location
    tags: tags
    principalIds: principals
    workspaceId: monitoring.outputs.workspaceId
    zoneRedundant: zoneRedundant
    subnetId: privateNetworking ? network!.outputs.containerSubnetId : ''
  }
}

module relayContainer 'modules/container-app.bicep' = if (workersAreThere && empty(relaySchedule)) {
  name: 'relay-container-${resourceToken}'
  params: {
    name: 'ca-relay-${resourceToken}'
    location: location
    tags: tags
    identityId: relayIdentity!.outputs.id
    environmentId: containers!.outputs.environmentId
    registryServer: containers!.outputs.registryServer
    image: workerImage
    command: ['python', '-m', 'cosmos_outbox', 'relay', '--probes', '0.0.0.0:8080']
    appSettings: relaySettings
    port: 8080
    livenessPath: '/healthz'
    readinessPath: '/readyz'
    ingress: false
    stopped: relayPaused
    minimumReplicas: zoneRedundant ? 2 : 1
    maximumReplicas: maximumReplicas
  }
}

module relayJob 'modules/container-job.bicep' = if (workersAreThere && !empty(relaySchedule)) {
  name: 'relay-job-${resourceToken}'
  params: {
    name: 'caj-relay-${resourceToken}'
    location: location
    tags: tags
    identityId: relayIdentity!.outputs.id
    environmentId: containers!.outputs.environmentId
    registryServer: containers!.outputs.registryServer
    image: workerImage
    appSettings: relaySettings
    paused: relayPaused
    schedule: relaySchedule
  }
}

module subscriberContainer 'modules/container-app.bicep' = if (workersAreThere) {
  name: 'subscriber-container-${resourceToken}'
  params: {
    name: 'ca-sub-${resourceToken}'
    location: location
    tags: tags
    identityId: subscriberIdentity!.outputs.id
    environmentId: containers!.outputs.environmentId
    registryServer: containers!.outputs.registryServer
    image: workerImage
    command: ['python', '-m', 'cosmos_outbox', 'subscriber', '--probes', '0.0.0.0:8080']
    appSettings: subscriberSettings
    port: 8080
    livenessPath: '/healthz'
    readinessPath: '/readyz'
    ingress: false
    stopped: subscriberStopped
    minimumReplicas: zoneRedundant ? 2 : 1
    maximumReplicas: maximumReplicas
  }
}

module apiContainer 'modules/container-app.bicep' = if (inContainers && !empty(apiImage)) {
  name: 'api-container-${resourceToken}'
  params: {
    name: 'ca-api-${resourceToken}'
    location: location
    tags: tags
    identityId: apiIdentity.outputs.id
    environmentId: containers!.outputs.environmentId
    registryServer: containers!.outputs.registryServer
    image: apiImage
    command: []
    appSettings: apiSettings
    port: 8000
    livenessPath: ''
    readinessPath: '/readyz'
    ingress: true
    stopped: false
    minimumReplicas: zoneRedundant ? 2 : 1
    maximumReplicas: maximumReplicas
  }
}

module alerts 'modules/alerts.bicep' = {
  name: 'alerts-${resourceToken}'
  params: {
    resourceToken: resourceToken
    location: location
    tags: tags
    workspaceId: monitoring.outputs.workspaceId
    insightsId: monitoring.outputs.insightsId
    cosmosId: cosmos.outputs.id
    serviceBusId: overServiceBus ? serviceBus!.outputs.id : ''
    topicName: empty(serviceBusQueue) ? topicName : serviceBusQueue
    email: alertEmail
    monthlyBudget: monthlyBudget
    budgetStart: budgetStart
    docsUrl: docsUrl
    oldestWaitingSeconds: alertOldestWaitingSeconds
    ttlUsedPercent: alertTtlUsedPercent
    behindMinutes: alertBehindMinutes
    parkedContacts: alertParkedContacts
    setAsideMessages: alertSetAsideMessages
    deadlineSeconds: alertDeadlineSeconds
    deadlines: deadlines
    noReportMinutes: alertNoReportMinutes
    failedRequests: alertFailedRequests
    deadLetters: alertDeadLetters
    topicBytes: alertTopicBytes
    unreadMessages: alertUnreadMessages
    throttledRequests: alertThrottledRequests
  }
}

// Names as azd and docs/operate/deploy.md use them; the COSMOS and SERVICEBUS ones are what preflight reads.
output FUNCTION_APP_NAME string = inFunctions ? app!.outputs.name : ''
output FUNCTION_APP_URL string = inFunctions ? app!.outputs.url : apiContainer!.outputs.url
output WORKERS_APP_NAME string = inFunctions ? workersApp!.outputs.name : ''
output WORKERS_APP_URL string = inFunctions ? workersApp!.outputs.url : ''
output PACKAGES_ACCOUNT string = inFunctions ? packages!.outputs.name : ''
output REGISTRY_SERVER string = inContainers ? containers!.outputs.registryServer : ''
output TRANSPORT string = transport
output COSMOS__accountEndpoint string = cosmos.outputs.endpoint
output COSMOS_ACCOUNT_NAME string = cosmos.outputs.name
output COSMOS_DATABASE string = databaseName
output COSMOS_CONTAINER string = containerName
output SERVICEBUS__fullyQualifiedNamespace string = overServiceBus ? serviceBus!.outputs.fullyQualifiedNamespace : ''
output SERVICEBUS_NAMESPACE_NAME string = overServiceBus ? serviceBus!.outputs.name : ''
output SERVICEBUS_TOPIC string = topicName
output SERVICEBUS_QUEUE string = serviceBusQueue
output SERVICEBUS_TOPIC_PARTITIONED string = string(topicPartitioned)
output STORAGEQUEUE__queueServiceUri string = overServiceBus ? '' : workersStorage!.outputs.queueEndpoint
output EVENT_TTL_SECONDS string = string(eventTtlSeconds)
output APP_PYTHON_VERSION string = pythonVersion
output API_PRINCIPAL_ID string = apiIdentity.outputs.principalId
