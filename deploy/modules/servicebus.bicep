// Partitioning, duplicate detection and sessions are fixed when an entity is made. No autoDeleteOnIdle anywhere: a quiet
// month must not delete the topic or its subscription.
param name string
param location string
param tags object

@allowed(['Standard', 'Premium'])
param sku string
param messagingUnits int
param largestMessageKB int
param deleteLock bool
param dataPlaneLogs bool
param topicName string
param topicPartitioned bool
param subscriptionNames string[]
param duplicateDetectionWindow string
param maxDeliveryCount int
param otherSubscriptions array

@description('A queue in place of the topic, for the app alone; empty: there is a topic.')
param queueName string

@description('Who sends: the relay. The API does not.')
param senders string[]
param receivers string[]

@description('Who may own the data, for preflight; empty: nobody.')
param ownerPrincipalId string
param workspaceId string

@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string

var dataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'
var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var isTopic = empty(queueName)
var premium = sku == 'Premium'

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' = {
  name: name
  location: location
  tags: tags
  sku: premium ? { name: 'Premium', tier: 'Premium', capacity: messagingUnits } : { name: 'Standard', tier: 'Standard' }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: publicNetworkAccess
  }
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = if (isTopic) {
  parent: namespace
  name: topicName
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    enablePartitioning: topicPartitioned
    supportOrdering: true
    enableBatchedOperations: true
    maxSizeInMegabytes: 5120
    maxMessageSizeInKilobytes: premium ? largestMessageKB : null
  }
}

// What topic and subscription are, in one.
resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = if (!isTopic) {
  parent: namespace
  name: isTopic ? 'queue' : queueName
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    enablePartitioning: topicPartitioned
    enableBatchedOperations: true
    maxSizeInMegabytes: 5120
    maxMessageSizeInKilobytes: premium ? largestMessageKB : null
    requiresSession: true
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    lockDuration: 'PT1M'
  }
}

resource subscribers 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [for each in subscriptionNames: if (isTopic) {
  parent: topic
  name: each
  properties: {
    requiresSession: true
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    deadLetteringOnFilterEvaluationExceptions: true
    lockDuration: 'PT1M'
  }
}]

resource topicSenders 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in senders: if (isTopic) {
  name: guid(topic.id, principalId, dataSender)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource subscriptionReceivers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers) * length(subscriptionNames)): if (isTopic) {
  name: guid(topic.id, subscriptionNames[index % length(subscriptionNames)], receivers[index / length(subscriptionNames)], dataReceiver)
  scope: subscribers[index % length(subscriptionNames)]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: receivers[index / length(subscriptionNames)]
    principalType: 'ServicePrincipal'
  }
}]

resource queueSenders 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in senders: if (!isTopic) {
  name: guid(queue.id, principalId, dataSender)
  scope: queue
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource queueReceivers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in receivers: if (!isTopic) {
  name: guid(queue.id, principalId, dataReceiver)
  scope: queue
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource otherSubscribers 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [for each in otherSubscriptions: if (isTopic) {
  parent: topic
  name: each.name
  properties: {
    requiresSession: true
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    deadLetteringOnFilterEvaluationExceptions: true
    lockDuration: 'PT1M'
  }
}]

resource otherReceivers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherSubscriptions)): if (isTopic) {
  name: guid(topic.id, otherSubscriptions[index].name, otherSubscriptions[index].principalId, dataReceiver)
  scope: otherSubscribers[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: otherSubscriptions[index].principalId
    principalType: 'ServicePrincipal'
  }
}]

// Preflight reads the properties of topic and subscriptions, which counts as managing them.
resource preflightAccess 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(ownerPrincipalId)) {
  name: guid(namespace.id, ownerPrincipalId, dataOwner)
  scope: namespace
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataOwner)
    principalId: ownerPrincipalId
  }
}

// Nobody deletes the topic, or a subscription with its messages, by a mistake.
resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (deleteLock) {
  name: 'no-deletion'
  scope: namespace
  properties: {
    level: 'CanNotDelete'
  }
}

// Who changed a topic, a subscription or a queue; and who sends and receives, which Premium alone knows.
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'management'
  scope: namespace
  properties: {
    workspaceId: workspaceId
    logs: [for category in concat(['OperationalLogs'], dataPlaneLogs && premium ? ['RuntimeAuditLogs'] : []): {
      category: category
      enabled: true
    }]
  }
}

output id string = namespace.id
output name string = namespace.name
output fullyQualifiedNamespace string = '${namespace.name}.servicebus.windows.net'
