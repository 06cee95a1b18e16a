// A topic of one destination, beside that of the transport: the app sends to it, and nothing else here receives from it but
// those whom it is for.
param namespaceName string
param topicName string
param topicPartitioned bool
param duplicateDetectionWindow string
param maxDeliveryCount int

@description('The names of its subscriptions.')
param receivers string[]

@description('The identity that receives.')
param receiverPrincipalId string
param principalId string

var dataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var dataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'

resource namespace 'Microsoft.ServiceBus/namespaces@2024-01-01' existing = {
  name: namespaceName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = {
  parent: namespace
  name: topicName
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    enablePartitioning: topicPartitioned
    supportOrdering: true
    enableBatchedOperations: true
    maxSizeInMegabytes: 5120
  }
}

resource subscriptions 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = [for name in receivers: {
  parent: topic
  name: name
  properties: {
    requiresSession: true
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    deadLetteringOnFilterEvaluationExceptions: true
    lockDuration: 'PT1M'
  }
}]

resource sender 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(topic.id, principalId, dataSender)
  scope: topic
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataSender)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource receiverRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers)): {
  name: guid(subscriptions[index].id, receiverPrincipalId, dataReceiver)
  scope: subscriptions[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReceiver)
    principalId: receiverPrincipalId
    principalType: 'ServicePrincipal'
  }
}]
